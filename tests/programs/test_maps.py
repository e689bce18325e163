"""Sums of weights that give a value, against the limits that made it."""

from __future__ import annotations

import pytest
import torch

from interp.programs.maps import weighed


@pytest.mark.parametrize("limits", [(0.7,), (0.3, 0.6)])
def test_sums_of_weights_find_the_limits_of_a_share(limits: tuple[float, ...]) -> None:
    share = torch.rand(400, generator=torch.Generator().manual_seed(0))
    target = sum((share > limit).long() for limit in limits)
    shares = torch.stack([share, 1 - share], 1)
    found = weighed(target, {"other": torch.ones(400, 1), "shares": shares}, len(limits) + 1, 0.99)
    assert found.of == ("shares",)
    assert found.share >= 0.99
    given = (shares.double() @ found.weights[0] + found.bias).argmax(1)
    assert float((given == target).double().mean()) == found.share
