"""The compact proof of models that are read at the last number, against a run of every input."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

import interp

ROOT = Path(__file__).resolve().parent.parent
STUDY = runpy.run_path(str(ROOT / "analyses" / "max_of_k_compact.py"))


@pytest.mark.parametrize(("K", "v", "size"), [(2, 5, 1.0), (3, 6, 0.3), (3, 6, 1.0), (4, 5, 0.6)])
def test_errors_are_those_of_every_input_and_bounds_lie_below(K: int, v: int, size: float) -> None:
    model = interp.build(STUDY["spec_of"](K, v, 1), seed=K).to(torch.float64)
    generator = torch.Generator().manual_seed(v)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
        model.blocks[0].attn.W_Q *= 0.05  # weights of one size: nothing is near a tie
        model.unembed.W_U += torch.linalg.pinv(model.embed.W_E.double()) * 3  # tokens say themselves
    found = STUDY["count"](model)
    wrong = sum(int((model.predict(batch.tokens) != batch.labels).sum()) for batch in model.task.inputs(512))
    assert (found["errors"], found["near"]) == (wrong, 0)
    assert 0 < wrong < v**K
    assert found["accuracy"] == pytest.approx(1 - wrong / v**K)
    assert found["bound 0"] <= found["bound 1"] <= found["bound"] == pytest.approx(found["accuracy"])
    assert found["operations 0"] <= found["operations 1"] <= found["operations"]
    cut = STUDY["count"](model, most=0.0)
    assert cut["open"] > 0
    assert cut["bound"] <= 1 - wrong / v**K <= 1 - cut["errors"] / v**K
