"""Inputs as distinct tokens with counts give what whole inputs give, measure by measure."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import interp
from interp.families.algorithmic.tasks.max_of_k import MaxAtLast
from interp.measures import attention, minimal_pairs, results, runs
from interp.measures.head_types import head_features, head_types
from interp.measures.results import reduced, reduced_pairs
from interp.models.spec import MLP, Layer, ModelSpec, Training
from interp.models.subject import Subject

N = 48
MEASURES: dict[str, Callable[[interp.TaskModel, interp.Batch], Any]] = {
    "attention": lambda model, batch: attention.attention_by_token(model, batch, only_reads=True),
    "head types": lambda model, batch: head_types(model, batch, "read").to_frame(),
    "attribution": lambda model, batch: interp.direct_logit_attribution(model, batch).to_frame(),
    "patching": lambda model, batch: interp.activation_patching(model, batch, by_position=True).to_frame(),
    "edges": lambda model, batch: interp.path_patching(model, batch).to_frame(),
    "variables": lambda model, batch: interp.probe(model, inputs=batch).to_frame(),
    "heads by feature": head_features,
}


@pytest.fixture(scope="module", params=["count01/minimal", pytest.param("count01/paper", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> interp.TaskModel:
    return interp.load(request.param, dtype="float64")


@pytest.mark.parametrize("name", MEASURES)
def test_measures_give_what_whole_inputs_give(
    model: interp.TaskModel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few counts of 2s, so that one row in four has none.
    counts = torch.randint(0, 20, (N, 3), generator=torch.Generator().manual_seed(1))
    counts[::4, 2] = 0
    batch = model.task.sentences(counts)
    lengths: list[int] = []
    run = Subject.masked
    monkeypatch.setattr(
        Subject, "masked", lambda self, batch: lengths.append(batch.tokens.shape[1]) or run(self, batch)
    )
    short = MEASURES[name](model, batch)
    assert max(lengths) <= 6
    monkeypatch.setattr(results, "reduces", lambda subject: False)
    whole = MEASURES[name](model, batch)
    assert max(lengths) > 20
    assert list(short.columns) == list(whole.columns)
    for column in whole.columns:
        if whole[column].dtype.kind == "f":
            assert short[column].to_numpy() == pytest.approx(whole[column].to_numpy(), abs=1e-5, rel=1e-5, nan_ok=True)
        else:
            assert short[column].tolist() == whole[column].tolist()


@pytest.mark.parametrize(("direction", "mlp"), [("causal", None), ("causal", MLP(d_mlp=5)), ("bidirectional", None)])
def test_order_blind_layers_of_any_shape_run_on_distinct_tokens(direction: str, mlp: MLP | None) -> None:
    """Answers are read at the last token, which occurs before; the readout is a ReLU MLP."""
    task = MaxAtLast(K=9, v=4)
    spec = ModelSpec(
        task=task.ref, d_model=6, layers=(Layer(n_heads=2, d_head=3, mlp=mlp),), readout_at="last", dtype="float64",
        direction=direction, origin=Training(epochs=1, learning_rate=0.01, data="exact"), n_out=4,
    )  # fmt: skip
    subject = Subject.of(interp.build(spec, seed=3))
    batch = task.sample(40)
    short = reduced(subject, batch)
    assert short.tokens.shape[1] < batch.tokens.shape[1]
    where, there = runs.reads_of(subject, short), runs.reads_of(subject, batch)
    assert where.classes.equal(there.classes)
    assert where.pick(runs.forward(subject, short)).numpy() == pytest.approx(
        there.pick(runs.forward(subject, batch)).numpy()
    )


def test_pairs_hold_changed_tokens_apart(model: interp.TaskModel) -> None:
    subject = Subject.of(model)
    pairs = minimal_pairs.make_pairs(subject, 50)
    short = reduced_pairs(subject, pairs)
    assert bool((short.clean.counts == short.corrupted.counts).all())
    changed = short.clean.tokens != short.corrupted.tokens
    assert bool((short.clean.counts[changed] == 1).all())
    assert changed.sum(1).tolist() == [1] * len(pairs)
    lengths = subject.answer_positions(pairs.clean.tokens) + 1
    assert short.clean.counts.sum(1).equal(lengths)


def test_hooked_models_and_all_positions_run_whole() -> None:
    subject = Subject.of(interp.load("count01/minimal"))
    batch = subject.task.sample(4)
    with subject.model.hooks(fwd_hooks=[("blocks.0.hook_resid_pre", lambda value, hook: value)]):
        assert reduced(subject, batch) is batch
    histogram = Subject.of(interp.load("histogram/dot-softmax"))
    batch = histogram.task.sample(4)
    assert reduced(histogram, batch) is batch
