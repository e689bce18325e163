"""The cubic proof of max-of-K against every sequence: exactly the patterns that are right as a whole."""

import runpy
from collections import defaultdict
from pathlib import Path

import pytest

import interp
from interp.models.spec import Bias, Layer, ModelSpec, TaskRef, Training

STUDY = runpy.run_path(str(Path(__file__).resolve().parent.parent / "analyses" / "max_of_k_proofs.py"))
prove = STUDY["prove"]


def spec_of(positions: str, n_heads: int = 1) -> ModelSpec:
    layer = Layer(n_heads=n_heads, d_head=4, bias=Bias(q=True, k=True, v=True, o=True))
    return ModelSpec(
        task=TaskRef(name="max-of-k", parameters={"K": 3, "v": 4}), d_model=6, layers=(layer,), readout_at="=",
        dtype="float64", positions=positions, max_length=4 if positions == "learned" else None,
        origin=Training(init="torch"),
    )  # fmt: skip


def whole_patterns(model: interp.TaskModel) -> int:
    """Sequences in patterns (the maximum, and where or how often it stands) without any error."""
    batch = next(model.task.inputs())
    right = (model.predict(batch.tokens) == batch.labels).tolist()
    patterns: dict[object, list[bool]] = defaultdict(list)
    for row, good in zip(batch.tokens[:, :-1].tolist(), right):
        here = [token == max(row) for token in row]
        patterns[max(row), sum(here) if model.spec.positions == "none" else tuple(here)].append(good)
    return sum(len(each) for each in patterns.values() if all(each))


@pytest.mark.parametrize("positions", ["none", "learned"])
def test_it_proves_exactly_the_patterns_without_an_error(positions: str) -> None:
    sizes = set()
    for seed in range(6):
        model = interp.TaskModel(spec_of(positions), seed=seed)
        found = prove(model)
        assert found.proved == whole_patterns(model)
        assert int(found.cells["sequences"].sum()) == found.inputs == 64
        sizes.add(found.proved)
    assert len(sizes) > 1


def test_the_exact_model_is_proved_right_on_too_many_inputs() -> None:
    found = prove(interp.build("algorithmic/max-of-k-exact", K=30, v=40))
    assert found.proved == found.inputs == 40**30


def test_several_heads_are_refused() -> None:
    with pytest.raises(interp.InterpError, match="2 heads"):
        prove(interp.TaskModel(spec_of("none", n_heads=2)))
