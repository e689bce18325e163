"""The compiled count-space engine: gradients of the plain model, the reference engine's training, resuming."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from one_step import loss_and_gradient
from short_count01 import Short

from interp.errors import InterpError
from interp.families.count01.compiled.engine import (
    FusedCountSpaceEngine,
    data_of,
    logits_of,
    sizes_of,
)
from interp.families.count01.compiled.layout import Sizes, TrainingData, layout, workspace
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import Bias, Layer, ModelSpec, Training
from interp.tasks import IGNORED
from interp.training.compiled.layout import Layout
from interp.training.train import choose_engine, train

pytest.importorskip("numba")
CPU = torch.device("cpu")


def short_spec(**changes: object) -> ModelSpec:
    recipe = Training(epochs=4, batch_size=16, learning_rate=1e-2, schedule="cosine", warmup_epochs=1, init="torch")
    fields = {
        "task": {"name": "count01-short"}, "d_model": 7, "readout_at": "=", "dtype": "float64", "origin": recipe,
        "layers": [Layer(n_heads=2, d_head=3, norm="pre", bias=Bias(q=True, k=True, v=True, o=True))],
    }  # fmt: skip
    return ModelSpec(**{**fields, **changes})


VARIANTS = {
    "pre-norm, all biases": {},
    "no norm, no biases": {"readout_bias": False, "layers": [Layer(n_heads=3, d_head=2, scale=0.7)]},
    "the paper's": {"d_model": 32, "layers": [Layer(n_heads=16, d_head=2, scale=1.0, norm="pre", bias=Bias(o=True))]},
    "bidirectional": {"direction": "bidirectional", "layers": [Layer(n_heads=1, d_head=7, bias=Bias(k=True))]},
}  # fmt: skip


def gradient_of(
    sizes: Sizes, made: Layout, flat: np.ndarray, data: TrainingData
) -> tuple[float, dict[str, np.ndarray]]:
    from interp.families.count01.compiled import kernel as counts

    work = workspace(sizes, len(data.query), flat.dtype)
    loss, gradient = loss_and_gradient(counts, sizes, made, flat, work, data, len(data.order))
    return loss, made.views(gradient)


def assert_close(found: np.ndarray, wanted: torch.Tensor, tolerance: float, name: str) -> None:
    """Relative to the largest number of the array, or to 1/100 where all are tiny: biases of keys change nothing."""
    expected = wanted.detach().numpy()
    assert found.shape == expected.shape, name
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-2), name


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss_and_gradients_are_the_sequence_models(variant: str, dtype: torch.dtype) -> None:
    spec = short_spec(**VARIANTS[variant])
    model = TaskModel(spec, seed=3, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    for _, parameter in model.named_parameters():  # off the symmetric start: norms that scale, biases that shift
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator).to(dtype)
    batch = model.task.sample(23, "train", seed=5)
    if spec.direction == "bidirectional":  # it would see the padding: take equal lengths
        batch = model.task.sentences(torch.tensor([[2, 1, 3], [1, 3, 2], [0, 0, 6], [3, 3, 0]]), seed=1)
    classes = model.task.classes(batch)
    mask = torch.ones_like(batch.tokens) if spec.direction == "bidirectional" else None
    expected = model(batch.tokens, attention_mask=mask)[classes != IGNORED]
    loss = torch.nn.functional.cross_entropy(expected, classes[classes != IGNORED])
    loss.backward()

    kind = np.float64 if dtype == torch.float64 else np.float32
    sizes, data = sizes_of(spec, model.task, dtype), data_of(spec, model.task, batch, kind)
    made = layout(sizes, kind)
    flat = made.zeros()
    views = made.views(flat)
    for name, parameter in model.named_parameters():
        views[name][...] = parameter.detach().numpy()
    tight = 1e-10 if dtype == torch.float64 else 1e-5
    value, gradient = gradient_of(sizes, made, flat, data)
    assert value == pytest.approx(loss.item(), rel=tight)
    assert gradient.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert_close(gradient[name], parameter.grad, tight, name)
    assert_close(logits_of(sizes, flat, data, rows=5), expected, tight, "logits")


def plain_loss(s: Sizes, p: dict[str, torch.Tensor], sequences: list[list[int]], targets: list[int]) -> torch.Tensor:
    """Softmax attention of the last position of each sequence over all positions, as it is defined."""
    total, attn = torch.zeros((), dtype=torch.float64), "blocks.0.attn."
    for sequence, target in zip(sequences, targets, strict=True):
        x = p["embed.W_E"][sequence]
        inner = torch.nn.functional.layer_norm(x, (s.d,), p["blocks.0.ln1.w"], p["blocks.0.ln1.b"], s.eps)
        out = x[-1]
        for h in range(s.heads):
            q, k, v = (inner @ p[f"{attn}W_{name}"][h] for name in "QKV")
            pattern = ((q[-1] @ k.T) * s.scale).softmax(0)
            out = out + pattern @ v @ p[f"{attn}W_O"][h]
        logits = out @ p["unembed.W_U"] + p["unembed.b_U"]
        total = total + torch.nn.functional.cross_entropy(logits[None], torch.tensor([target]))
    return total / len(targets)


@pytest.mark.slow
@pytest.mark.parametrize(("stretch", "safe"), [(1.0, 500.0), (40.0, 500.0), (4.0, 8.0)])
def test_larger_vocabularies_and_scores_that_would_underflow(stretch: float, safe: float) -> None:
    """19 tokens and 11 classes fill no whole number of vectors. Stretched, scores differ by thousands: a row that lacks
    the key with the largest score must still be right. At 8 some query tokens, which are keys of all their rows, lie
    close enough to the largest for their rows to be taken together, and some do not."""
    s = Sizes(T=19, d=5, heads=3, d_head=2, width=6, classes=11, norm=True, b_q=False, b_k=False, b_v=False, b_o=False,
              b_u=True, scale=0.5, eps=1e-5, safe=safe)  # fmt: skip
    draw = np.random.default_rng(7)
    made = layout(s, np.float64)
    flat = made.zeros()
    views = made.views(flat)
    for name, view in views.items():
        view[...] = draw.standard_normal(view.shape) * (stretch if name.endswith(("W_Q", "W_K")) else 1)
    sequences = [draw.integers(0, 19, draw.integers(1, 12)).tolist() for _ in range(40)]
    for sequence in sequences[:25]:
        sequence[-1] = 4
    targets = draw.integers(0, 11, 40).tolist()
    counts = np.stack([np.bincount(sequence, minlength=19) for sequence in sequences]).astype(np.float64)
    query = np.array([sequence[-1] for sequence in sequences])
    p = {name: torch.tensor(np.array(view), requires_grad=True) for name, view in views.items()}
    expected = plain_loss(s, p, sequences, targets)
    expected.backward()
    value, gradient = gradient_of(s, made, flat, TrainingData(query, counts, np.array(targets), 1, np.arange(40)))
    assert value == pytest.approx(expected.item(), rel=1e-10)
    for name, parameter in p.items():
        assert parameter.grad is not None
        assert_close(gradient[name], parameter.grad, 1e-10, name)
    inner = torch.nn.functional.layer_norm(p["embed.W_E"], (5,), p["blocks.0.ln1.w"], p["blocks.0.ln1.b"], s.eps)
    scores = (inner @ p["blocks.0.attn.W_Q"][0]) @ (inner @ p["blocks.0.attn.W_K"][0]).T * s.scale
    assert (float((scores.amax(1) - scores.amin(1)).detach().max()) > s.safe) == (
        stretch > 1
    )  # the case is what it says


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["learned", "frozen"])
def test_training_is_the_reference_engines(embedding: str) -> None:
    """Same batches, same schedule, same Adam: 60 sentences in batches of 16, the last one of 12."""
    spec = short_spec(embedding=embedding)
    fast, slow = train(spec, [0, 7], engine="count-space-fused"), train(spec, [0, 7], engine="reference")
    for a, b in zip(fast, slow, strict=True):
        for (name, mine), (_, its) in zip(a.named_parameters(), b.named_parameters(), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-8, atol=1e-8, msg=name)
        assert a.history["loss"].to_list()[1:] == pytest.approx(b.history["loss"].to_list()[1:], rel=1e-8)
        assert a.history["accuracy"].to_list() == b.history["accuracy"].to_list()
    start = TaskModel(spec, seed=0).embed.W_E
    assert torch.equal(fast[0].embed.W_E, start) == (embedding == "frozen")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_model_does_not_depend_on_its_neighbors(dtype: str) -> None:
    spec = short_spec(dtype=dtype)
    (alone,) = train(spec, [2], engine="count-space-fused")
    together = train(spec, [0, 1, 2], engine="count-space-fused")
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), together[2].parameters(), strict=True))
    assert not torch.equal(alone.embed.W_E, together[0].embed.W_E)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_interrupted_run_continues_where_it_stopped(tmp_path, monkeypatch, dtype: str) -> None:
    monkeypatch.setattr("interp.training.train.SAVE_EVERY_SECONDS", 0.0)
    run = functools.partial(train, short_spec(dtype=dtype), [0, 1], snapshots=[0, 1], engine="count-space-fused")

    def interrupt(done: int, total: int, loss: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="epoch 2 of 4"):
        run(folder=tmp_path, progress=interrupt)
    resumed = run(folder=tmp_path, resume=True)
    whole = run()
    for a, b in zip(resumed, whole, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
        assert torch.equal(a.snapshots[1].embed.W_E, b.snapshots[1].embed.W_E)
        assert a.history["loss"].to_list()[1:] == b.history["loss"].to_list()[1:]
    assert torch.equal(whole[1].snapshots[0].embed.W_E, TaskModel(short_spec(dtype=dtype), seed=1).embed.W_E)


def test_what_it_cannot_train_is_said() -> None:
    task = Short()
    assert choose_engine(short_spec(), task, CPU, "count-space-fused") is FusedCountSpaceEngine
    decayed = short_spec().training.model_copy(update={"weight_decay": 0.1})
    refused = {
        "one layer without positions": short_spec(positions="learned", max_length=30),
        "query_key = .learned.": short_spec(layers=[Layer(n_heads=2, d_head=7, query_key="full")]),
        "weight decay": short_spec(origin=decayed),
    }
    for reason, spec in refused.items():
        with pytest.raises(InterpError, match=f"count-space-fused cannot train .*{reason}"):
            choose_engine(spec, task, CPU, "count-space-fused")
    with pytest.raises(InterpError, match="runs on the CPU, not on cuda"):
        choose_engine(short_spec(), task, torch.device("cuda"), "count-space-fused")
    with pytest.raises(InterpError, match=r"dtype torch.bfloat16; .* float32 or float64"):
        train(short_spec(), [0], engine="count-space-fused", dtype="bfloat16")
