"""Sums of weights: of scores, and of what is read through a norm, against the numbers themselves."""

from __future__ import annotations

import pytest
import torch

from interp.programs.language import Sums, applied
from interp.programs.norms import length, undivided
from interp.programs.read_sums import Fitted, Input, covariance, fewest, products_of


def test_products_are_the_scores_up_to_a_constant_of_each_query() -> None:
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (30, 40))
    k[:, 2:] = 1.0  # keys differ in two directions
    for products in (2, 6):
        left, right = products_of(q, k, products)
        assert left.shape == right.shape == (6, products)
        off = (q @ left) @ (k @ right).T - q @ k.T
        assert float((off - off.mean(1, keepdim=True)).abs().max()) < 1e-6
    left, right = products_of(q, k, 1)
    off = (q @ left) @ (k @ right).T - q @ k.T
    assert float((off - off.mean(1, keepdim=True)).abs().max()) > 0.1


def test_heads_of_one_dimension_have_products_too() -> None:
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n, 1, generator=draw, dtype=torch.float64) for n in (30, 40))
    left, right = products_of(q, k, 1)
    off = (q @ left) @ (k @ right).T - q @ k.T
    assert float((off - off.mean(1, keepdim=True)).abs().max()) < 1e-6
    assert covariance(k).shape == (1, 1)


def flat(features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weights.flatten(0, 1) for name, weights in features.items()}


@pytest.mark.parametrize("norm", ["none", "layer norm, written"])
def test_what_is_read_is_a_sum_over_the_variables(norm: str) -> None:
    draw = torch.Generator().manual_seed(1)
    features = {
        name: torch.nn.functional.one_hot(torch.randint(3, (50, 4), generator=draw), 3).double()
        for name in ("token", "position")
    }
    stream = sum(one @ torch.randn(3, 8, generator=draw, dtype=torch.float64) for one in features.values())
    layer = torch.nn.LayerNorm(8, elementwise_affine=False) if norm != "none" else None
    where = torch.ones(50, 4, dtype=torch.bool)
    by = None if layer is None else length("length", flat(features), undivided(layer, stream).flatten(0, 1), layer.eps)
    read = Input(features, stream, layer, by, where)
    made = dict(features)
    for step in read.fit(["token", "position"]).sums("sums", torch.eye(8, dtype=torch.float64)):
        made[step.name] = applied(step, made, where)
    wanted = stream if layer is None else layer(stream)
    torch.testing.assert_close(made["sums"], wanted, rtol=0, atol=1e-4)


def test_only_parts_behind_one_norm_share_what_is_normed() -> None:
    """Two heads of a layer that read the same variables do; an MLP that reads these has another length."""
    vectors = torch.randn(3, 4, dtype=torch.float64)
    lengths = [Sums(name, ("token",), (((1.0,),) * 3,), (0.0,)) for name in ("length 0", "length 1")]
    one, same, other = (
        Fitted(("token",), vectors, vectors[0], [2], by).sums(name, torch.eye(4, dtype=torch.float64))
        for name, by in (("query", lengths[0]), ("key", lengths[0]), ("neurons", lengths[1]))
    )
    assert one[:2] == same[:2]
    assert one[1].of == ("token", "length 0")
    assert not {step.name for step in one} & {step.name for step in other}


def test_the_first_names_that_nothing_needs_are_left_out() -> None:
    assert fewest("abcde", lambda left: "b" in left and len(left) > 2) == ["b", "d", "e"]
