"""Sums of weights and limits of one sum that give a value, against those that made it."""

import pytest
import torch

from interp.programs.maps import limits, weighed


@pytest.mark.parametrize("between", [(0.7,), (0.3, 0.6)])
def test_sums_of_weights_find_the_limits_of_a_share(between: tuple[float, ...]) -> None:
    share = torch.rand(400, generator=torch.Generator().manual_seed(0))
    target = sum((share > limit).long() for limit in between)
    shares = torch.stack([share, 1 - share], 1)
    found = weighed(target, {"other": torch.ones(400, 1), "shares": shares}, len(between) + 1, 0.99)
    assert found.of == ("shares",)
    assert found.share >= 0.99
    given = (shares.double() @ found.weights[0] + found.bias).argmax(1)
    assert float((given == target).double().mean()) == found.share


def test_a_narrow_limit_is_fitted_with_next_to_no_penalty() -> None:
    """With a small penalty, the limit is not where it must be, and 3 of 400 points are wrong."""
    share = torch.cat([torch.linspace(0, 0.4995, 200), torch.linspace(0.5005, 0.52, 200)]).double()
    features = {"shares": torch.stack([share, 1 - share], 1)}
    target = (share > 0.5).long()
    assert weighed(target, features, 2, 0.99).share == 0.9925
    found = weighed(target, features, 2, 1.0)
    assert found.share == 1.0
    assert not found.weights[0][:, 0].any()  # of two values, the first has no weights


def test_limits_of_a_sum_of_two_variables() -> None:
    """Values 0, 3 and 1 in the order of their sums, with room between them; 2 does not occur."""
    draw = torch.Generator().manual_seed(0)
    features = {name: torch.rand(400, 3, generator=draw).double() for name in ("one", "other")}
    z = (
        features["one"] @ torch.tensor([1.0, 0.0, -1.0]).double()
        + features["other"] @ torch.tensor([0.0, 2.0, 0.0]).double()
    )
    apart = ((z - 0.5).abs() > 0.02) & ((z - 1.4).abs() > 0.02)
    features, z = {name: one[apart] for name, one in features.items()}, z[apart]
    target = torch.tensor([0, 3, 1])[(z > 0.5).long() + (z > 1.4).long()]
    found = limits(target, features)
    assert found.share == 1.0
    assert found.order.tolist() in ([0, 3, 1], [1, 3, 0])
    lines = sum(features[name] @ found.slopes(w, 5) for name, w in zip(found.of, found.weights, strict=True))
    assert (torch.as_tensor(lines) + found.bias(5)).argmax(1).equal(target)
    assert limits(target, {"one": features["one"]}, torch.tensor([3, 0, 1])).share < 0.9
