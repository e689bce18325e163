"""The forward pass on distinct rows against the sequence model: logits and gradients, many models, ragged strings."""

import pytest
import torch

import interp
from interp.families.languages.forward import distinct_rows, encoder_logits, encoder_refusal
from interp.models.constructions import construct
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef


def published(task: str = "first", positions: str = "first", readout_at: str = "[CLS]", **layer) -> ModelSpec:
    """The shape of the published learned models, smaller, with any layer option changed."""
    plan = {"norm": "post", "bias": Bias(q=True, k=True, v=True, o=True), "mlp": MLP(d_mlp=12), **layer}
    return ModelSpec(
        task=TaskRef(name=task),
        d_model=8,
        direction="bidirectional",
        layers=(Layer(n_heads=2, d_head=4, **plan),) * 2,
        positions=positions,
        readout="scalar",
        readout_at=readout_at,
        decision="sigmoid",
        dtype="float64",
    )


SPECS = {
    "published": published(),
    "log length": published(log_length="current"),
    "training length": published(log_length=50),
    "pre norm": published(norm="pre", norm_eps=0.1),
    "no norm, no mlp": published(norm="none", mlp=None, bias=Bias()),
    "gelu": published(mlp=MLP(d_mlp=5, activation="gelu"), scale="inv_sqrt_d_model"),
    "i/n": published("one", "fraction"),
    "sinusoids": published("palindrome", "sinusoidal"),
    "halves": published("palindrome", "halves"),
    "no positions": published("parity", "none"),
    "read last": published("parity", "parity", "last"),
    "one symbol at the end": published("dyck2", "first", scale=0.3),
}


def randomized(spec: ModelSpec, seed: int) -> interp.TaskModel:
    model, generator = interp.TaskModel(spec), torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return model


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@pytest.mark.thinned(3)
def test_logits_and_gradients_equal_the_sequence_models(spec: ModelSpec) -> None:
    models = [randomized(spec, seed) for seed in range(3)]
    batch = models[0].task.strings(12, 14, 2, seed=1)
    stacked = {
        name: torch.stack([dict(m.named_parameters())[name].detach() for m in models]).requires_grad_()
        for name, _ in models[0].named_parameters()
    }
    rows = distinct_rows(spec, models[0].task, batch).to("cpu", torch.float64)
    found = encoder_logits(spec, stacked, rows)
    wanted = [m(batch.tokens)[torch.arange(12), m.answer_positions(batch.tokens)] for m in models]
    torch.testing.assert_close(found, torch.stack(wanted), atol=1e-12, rtol=1e-10)
    weights = torch.linspace(-1, 1, 12, dtype=torch.float64)
    (found.squeeze(-1) * weights).sum().backward()
    for index, model in enumerate(models):
        (wanted[index].squeeze(-1) * weights).sum().backward()
        for name, parameter in model.named_parameters():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(stacked[name].grad[index], grad, atol=1e-11, rtol=1e-9)


def test_first_has_four_rows_at_any_length() -> None:
    task = construct("languages/first").task
    for length in (2, 50, 2000):
        rows = distinct_rows(published(), task, task.strings(6, length, seed=2))
        assert rows.tokens.shape[-1] <= 4
        assert rows.counts.sum(-1).tolist() == [[length + 1.0] * 6]
        assert (rows.tokens.gather(2, rows.read[..., None]) == task.token_id("[CLS]")).all()
    assert distinct_rows(published("one", "fraction"), task, task.strings(2, 30)).tokens.shape[-1] == 31


def test_refusals() -> None:
    task = construct("languages/first").task
    learned = published().replace(positions="learned", max_length=9)
    assert "learned positions" in (encoder_refusal(learned) or "")
    with pytest.raises(interp.InterpError, match="learned positions"):
        distinct_rows(learned, task, task.strings(2, 5))
    with pytest.raises(interp.InterpError, match="unknown token"):
        distinct_rows(published(readout_at="="), task, task.strings(2, 5))
    assert "bidirectional" in (encoder_refusal(construct("count01/minimal").spec) or "")
    assert encoder_refusal(construct("languages/parity").spec) is None


@pytest.mark.parametrize("name", ["published", "i/n", "read last"])
def test_parts_of_a_batch_are_as_wide_as_they_need(name: str) -> None:
    spec = SPECS[name]
    model = randomized(spec, 4)
    batch = model.task.strings(9, 30, 1, seed=6)
    stacked = {key: parameter.detach()[None] for key, parameter in model.named_parameters()}
    rows = distinct_rows(spec, model.task, batch)
    whole = encoder_logits(spec, stacked, rows)
    parts = [rows[start : start + 2] for start in range(0, 9, 2)]
    widths = [max(int((row.counts > 0).sum()) for row in (rows[i : i + 1], rows[i + 1 : i + 2])) for i in (0, 2, 4, 6)]
    assert [part.tokens.shape[-1] for part in parts[:4]] == widths
    torch.testing.assert_close(torch.cat([encoder_logits(spec, stacked, part) for part in parts], 1), whole)
