"""The optimizer of stacked engines, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.spec import Training
from interp.training.engines.base import StackedAdam


def loss_of(leaves: dict[str, Tensor]) -> Tensor:
    """ "c" takes no part in it: a leaf without a gradient."""
    return (leaves["a"] @ leaves["b"].mT).sin().sum()


@pytest.mark.parametrize(("optimizer", "decay"), [("adam", 0.0), ("adam", 0.1), ("adamw", 0.1)])
def test_steps_are_those_of_torch_bit_for_bit(optimizer: str, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    mine = {name: torch.randn(3, 5, generator=generator).requires_grad_() for name in "abc"}
    its = {name: leaf.detach().clone().requires_grad_() for name, leaf in mine.items()}
    recipe = Training(optimizer=optimizer, betas=(0.9, 0.98), eps=1e-9, weight_decay=decay, learning_rate=0.1)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    reference = kinds[optimizer](its.values(), betas=recipe.betas, eps=recipe.eps, weight_decay=decay, fused=True)
    adam, resumed = StackedAdam(mine, recipe), None
    for step in range(6):
        reference.param_groups[0]["lr"] = 0.01 * (step + 1)
        reference.zero_grad()
        loss_of(its).backward()
        reference.step()
        adam.step(loss_of(mine), 0.01 * (step + 1))
        if resumed is not None:
            resumed.step(loss_of(resumed.leaves), 0.01 * (step + 1))
        if step == 2:
            resumed = StackedAdam({name: torch.zeros(3, 5, requires_grad=True) for name in "abc"}, recipe)
            resumed.load_state(adam.state())
    assert resumed is not None
    for name, leaf in its.items():
        assert torch.equal(mine[name], leaf), name
        assert torch.equal(resumed.leaves[name], leaf), name
