"""The forward pass on rows that differ, against the task model on sequences: three symmetries, every readout."""

from dataclasses import replace

import pytest
import torch

from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.architecture import reduced
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import MLP, Bias, Layer, ModelSpec, Training
from interp.tasks import Batch

ALL = Bias(q=True, k=True, v=True, o=True)


def model_of(kind: str = "dot-softmax", **changes: object) -> TaskModel:
    """A small histogram model with weights of order one."""
    task = Histogram(T=5, L=4, bos=kind.startswith("bos"), zero_class=True)
    spec = histogram_spec(kind, task, 6, 7, "float64", Training()).replace(**changes)
    model, generator = TaskModel(spec), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


MODELS = {
    "distinct tokens": {"kind": "bos-softmax"},
    "distinct tokens, raw scores": {"kind": "bos"},
    "distinct tokens, two normed heads": {"layers": (Layer(n_heads=2, d_head=3, norm="pre", bias=ALL),)},
    "distinct tokens, a large eps": {"layers": (Layer(n_heads=2, d_head=3, norm="pre", norm_eps=0.3, bias=ALL),)},
    "counts": {"direction": "causal"},
    "counts, raw scores, linear readout": {
        "kind": "dot", "direction": "causal", "readout": "linear", "readout_width": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_sequence_model(name: str) -> None:
    model = model_of(**MODELS[name])
    task, spec = model.task, model.spec
    tokens = task.sample(6, seed=2).tokens
    rows, length = tokens.shape
    sequence, position = torch.arange(rows).repeat_interleave(length), torch.arange(length).repeat(rows)
    mask = torch.ones_like(tokens)[sequence]
    asked = reduced.counted_at(spec, task.d_vocab, tokens[sequence], position, mask).stacked(torch.float64)
    tables = reduced.token_tables(spec, reduced.stack_one(dict(model.named_parameters())))
    wanted = model(tokens).detach().flatten(0, 1)
    for found in (reduced.reduced_outputs(tables, asked), reduced.reduced_outputs(tables.folded(), asked)):
        torch.testing.assert_close(found[0], wanted, rtol=1e-12, atol=1e-12)


def test_both_ways_to_mix_agree_and_huge_scores_do_not_overflow() -> None:
    model = model_of("bos-softmax")
    tables = reduced.token_tables(model.spec, reduced.stack_one(dict(model.named_parameters())))
    tables = replace(tables, few=True)
    counts = torch.tensor([[1, 4, 0, 2, 1, 0], [1, 0, 0, 0, 1, 0]]).double()
    rows = reduced.CountedRows(torch.tensor([[4, 0]]), counts[None])
    plain = (reduced._coefficients(tables, rows) @ tables.values).transpose(1, 2)
    torch.testing.assert_close(reduced._by_products(tables, rows), plain, rtol=1e-12, atol=1e-12)
    # An absent token's score lies 10,000 above all others: its exponential must not drown those that are present.
    huge = tables.scores.clone()
    huge[..., 2] += 1e4
    torch.testing.assert_close(
        reduced.heads_from_counts(replace(tables, scores=huge), rows), plain, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("dtype", "spread"), [(torch.float32, 50.0), (torch.float32, 200.0), (torch.float64, 900.0)])
def test_scores_far_apart_keep_tokens_of_low_scores_alone(dtype: torch.dtype, spread: float) -> None:
    """Two tokens score 0, a third `spread`: where only the two are there, their weights must not be 0 / 0."""
    zero = torch.zeros(1, 1, 3, 3, dtype=dtype)
    scores, values = zero.clone(), zero[..., :1].clone()
    scores[..., 2] = spread
    values[0, 0, :, 0] = torch.tensor([3.0, 7.0, 1.0])
    tables = reduced.TokenTables(scores, values, None, zero[0, :, :, :1], few=True)
    counts = torch.tensor([[1, 3, 0], [1, 3, 1]], dtype=dtype)
    found = reduced.heads_from_counts(tables, reduced.CountedRows(torch.tensor([[0, 0]]), counts[None]))
    assert found[0, :, 0, 0].tolist() == pytest.approx([6.0, 1.0], rel=1e-6)


def test_what_has_no_such_rows_is_refused_with_the_reason() -> None:
    plain: ModelSpec = model_of().spec
    learned = plain.replace(positions="learned", max_length=4)
    assert "without positions" in (reduced.reduced_refusal(learned) or "")
    assert "MLP" in (reduced.reduced_refusal(plain.replace(layers=(Layer(d_head=6, mlp=MLP(d_mlp=3)),))) or "")
    assert "final layer norm" in (reduced.reduced_refusal(plain.replace(final_norm="layer_norm")) or "")
    assert reduced.reduced_refusal(plain) is None
    assert "a linear readout" in (reduced.count_space_refusal(plain) or "")


@pytest.mark.parametrize(("direction", "counts"), [
    ("causal", [[[1, 1, 0], [1, 2, 1]], [[0, 0, 1], [0, 0, 3]]]), ("bidirectional", [[[1, 2, 1]] * 2, [[0, 0, 3]] * 2]),
])  # fmt: skip
def test_tokens_are_counted_at_each_position_that_is_read(direction: str, counts: list[object]) -> None:
    """By hand: the last token of the second row is padding."""
    batch = Batch(torch.tensor([[0, 1, 1, 2], [2, 2, 2, 0]]), torch.tensor([4, 3]), torch.zeros(2, dtype=torch.long))
    spec, read = model_of(direction=direction).spec, torch.tensor([[-100, 0, -100, 0], [0, -100, 0, -100]])
    found = reduced.counted_reads(spec, 3, batch, read)
    assert found is not None
    assert (found.query.tolist(), found.counts.tolist()) == ([[1, 2], [2, 2]], counts)
    read[0, 0] = 1  # three positions of one row, two of another
    assert reduced.counted_reads(spec, 3, batch, read) is None
    assert reduced.counted_reads(spec, 3, batch[:0], read[:0]) is None
