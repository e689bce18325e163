"""The compact proof of models that are read at the last number, against a run of every input."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_weights import draw

import interp

ROOT = Path(__file__).resolve().parent.parent
STUDY = runpy.run_path(str(ROOT / "analyses" / "max_of_k_compact.py"))


@pytest.mark.parametrize(("K", "v", "size"), [(2, 5, 1.0), (3, 6, 0.3), (3, 6, 1.0), (4, 5, 0.6)])
def test_errors_are_those_of_every_input_and_bounds_lie_below(K: int, v: int, size: float) -> None:
    model = interp.build(STUDY["spec_of"](K, v, 1), seed=K).to(torch.float64)
    draw(model, v, size, torch.float32)
    with torch.no_grad():
        model.blocks[0].attn.W_Q *= 0.05  # weights of one size: nothing is near a tie
        model.unembed.W_U += torch.linalg.pinv(model.embed.W_E.double()) * 3  # tokens say themselves
    found = STUDY["count"](model)
    wrong = sum(int((model.predict(batch.tokens) != batch.labels).sum()) for batch in model.task.inputs(512))
    assert (found["errors"], found["near"]) == (wrong, 0)
    assert 0 < wrong < v**K
    assert found["accuracy"] == pytest.approx(1 - wrong / v**K)
    bounds = [found[f"bound by {name}"] for name in ("cells", "tails", "places")]
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(found["accuracy"])
    for most in (0.0, 1e4, 1e5):
        cut = STUDY["count"](model, most=most)
        assert cut["operations, cells"] <= cut["operations, tails"] <= cut["operations, places"]
        right = [round(cut[f"bound by {name}"] * v**K) for name in ("cells", "tails", "places")]
        assert [*right, v**K - wrong, v**K - cut["errors"]] == sorted([*right, v**K - wrong, v**K - cut["errors"]])
        assert cut["open"] > 0 or cut["errors"] == wrong
        assert cut["open"] > 0 or most


def test_tails_bound_the_count_of_sums_that_are_not_positive() -> None:
    generator = np.random.default_rng(0)
    for seed in range(20):
        lead = generator.normal(0.6, 1.0, (4, 5, 3))
        cell = STUDY["Cell"](STUDY["Pair"](lead, 0.0), lead[3, 4], [(0, False), (1, True), (2, True)], np.arange(3))
        sums = lead[3, 4] + lead[0, :4, None, None] + lead[1, None, :, None] + lead[2, None, None]
        wrong = int((sums <= 0).any(-1).sum())
        assert wrong <= float(cell.tails(0, cell.fixed[None])[0]) <= 4 * 5 * 5, seed
        per_rival = sum(int((sums[..., j] <= 0).sum()) for j in range(3))
        assert per_rival <= float(cell.tails(0, cell.fixed[None])[0]) or per_rival > 100, seed
