"""The stacked engine on rows that differ: the loss, gradients and models of the sequence model, on CPU and CUDA."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import interp
from interp.errors import InterpError
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import MLP, Bias, Layer, ModelSpec, Training
from interp.tasks import IGNORED, Batch, Task, make_task
from interp.training.engines.reference import batch_loss
from interp.training.engines.stacked import epoch_rows, losses
from interp.training.train import choose_engine, train, train_parameters

CPU = torch.device("cpu")
SIX = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")
RECIPE = Training(epochs=3, batch_size=8, data="fresh", samples_per_epoch=30, learning_rate=1e-2, init="torch")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


@interp.register_task
class Ragged(Task):
    """Rows of 1 to 6 letters; a class at each position that depends on it, none at the letter x."""

    name = "ragged-for-tests"
    vocabulary = ("a", "b", "c", "x", "-")
    pad = "-"

    @property
    def n_out(self) -> int:
        return 3

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 7, (n,), generator=generator)
        tokens = torch.randint(0, 4, (n, 6), generator=generator)
        tokens[:, 0] = 0
        kept = torch.arange(6) < lengths[:, None]
        tokens = tokens.where(kept, 4)
        return Batch(tokens, lengths, self.answers((tokens + torch.arange(6)) % 3, tokens))

    def classes(self, batch: Batch) -> Tensor:
        return batch.labels.masked_fill(batch.labels < 0, IGNORED)

    def answers(self, classes: Tensor, tokens: Tensor) -> Tensor:
        return classes.masked_fill((tokens == 3) | (tokens == 4), -1)


def histogram(model: str, **changes: Any) -> ModelSpec:
    task = Histogram(T=7, L=5, bos=model.startswith("bos"), zero_class=True)
    return histogram_spec(model, task, 6, 4, "float64", RECIPE).replace(**changes)


def layer(**changes: Any) -> ModelSpec:
    return histogram("dot", d_model=6, layers=(Layer(**{"d_head": 3, "n_heads": 2, **changes}),))


ALL = Bias(q=True, k=True, v=True, o=True)
SPECS = {
    **{model: histogram(model) for model in SIX},
    "learned values, all biases": layer(bias=ALL),
    "pre-norm, raw scores": layer(norm="pre", normalizer="none", bias=ALL, scale=0.3),
    "full matrices": layer(d_head=6, query_key="full", value_output="full"),
    "two heads of the residual stream, normed": layer(d_head=6, value_output="identity", norm="pre"),
    "linear mixing, two heads": histogram(
        "lin-softmax", layers=(Layer(d_head=3, n_heads=2, mixing="linear", bias=Bias(v=True, o=True)),)
    ),
    "linear readout": histogram("dot", readout="linear", readout_width=None),
    "linear readout without bias": histogram("bos", readout="linear", readout_width=None, readout_bias=False),
    "another task, ragged": layer(bias=ALL).replace(task={"name": "ragged-for-tests"}),
}  # fmt: skip


def stacked(models: list[TaskModel], dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    named = [dict(model.named_parameters()) for model in models]
    return {
        name: torch.stack([one[name].detach() for one in named]).to(device, dtype).requires_grad_() for name in named[0]
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", SPECS)
def test_loss_and_gradients_are_those_of_the_sequence_model(name: str, dtype: torch.dtype, device: str) -> None:
    spec, task = SPECS[name], make_task(SPECS[name].task)
    models = [TaskModel(spec, task, seed=seed, dtype=dtype) for seed in (3, 4)]
    batches = [task.sample(9, "train", seed=seed) for seed in (5, 6)]
    rows = epoch_rows(spec, task, models[0].cfg.d_vocab_out, batches, 5).to(torch.device(device), dtype)
    tensors = stacked(models, dtype, device)
    tight = 1e-10 if dtype == torch.float64 else 1e-5
    for step, part in enumerate((slice(0, 5), slice(5, 9))):
        found = losses(spec, tensors, rows[step])
        for tensor in tensors.values():
            tensor.grad = None
        found.sum().backward()
        for index, (model, batch) in enumerate(zip(models, batches)):
            model.zero_grad()
            expected = batch_loss(model, batch[part])
            expected.backward()
            torch.testing.assert_close(found[index].cpu(), expected, rtol=tight, atol=tight)
            for key, parameter in model.named_parameters():
                grad = tensors[key].grad[index].cpu()
                scale = float(parameter.grad.abs().max()) or 1.0
                assert float((grad - parameter.grad).abs().max()) <= tight * max(scale, 1.0), key


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["lin", "bos-softmax", "another task, ragged"])
def test_the_engine_trains_the_models_of_the_reference(name: str, device: str) -> None:
    spec = SPECS[name]
    fast = train(spec, [0, 7], engine="stacked", device=device)
    slow = train(spec, [0, 7], engine="reference")
    for a, b in zip(fast, slow):
        for (key, mine), (_, its) in zip(a.named_parameters(), b.named_parameters()):
            torch.testing.assert_close(mine.cpu(), its, rtol=1e-9, atol=1e-9, msg=key)
        assert a.history["accuracy"].to_list() == pytest.approx(b.history["accuracy"].to_list(), abs=1e-12)
        assert a.history["loss"].to_list()[1:] == pytest.approx(b.history["loss"].to_list()[1:], rel=1e-9)


def test_rows_are_the_distinct_tokens_with_their_classes() -> None:
    spec = histogram("bos")
    task = make_task(spec.task)
    sequences = torch.tensor([[1, 1, 4, 1, 0], [2, 2, 2, 2, 2], [6, 5, 4, 3, 2]])
    rows = epoch_rows(spec, task, task.n_out, [task.of_sequences(sequences)], 2)
    assert rows.query.shape == (2, 1, 5)
    first = rows[0]
    listed = zip(first.sequence[0].tolist(), first.query[0].tolist(), first.target[0].tolist())
    assert {(sequence, token): target for sequence, token, target in listed if sum(target)} == {
        (0, 0): [0, 1, 0, 0, 0, 0], (0, 1): [0, 0, 0, 3, 0, 0], (0, 4): [0, 1, 0, 0, 0, 0],
        (1, 2): [0, 0, 0, 0, 0, 5],
    }  # fmt: skip
    assert first.target.sum() == 10
    assert rows[1].target.sum() == 5  # the last step has one sequence


@pytest.mark.parametrize("engine", ["stacked", pytest.param("fused", marks=pytest.mark.slow)])
def test_an_interrupted_run_continues_where_it_stopped(engine: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("interp.training.train.SAVE_EVERY_SECONDS", 0.0)
    spec = histogram("dot-softmax")

    def interrupt(done: int, total: int, loss: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    given = {"engine": engine, "folder": tmp_path, "snapshots": [1]}
    with pytest.raises(KeyboardInterrupt, match="epoch 2 of 3"):
        train_parameters(spec, [0, 1], progress=interrupt, **given)
    epochs = []
    resumed, run = train_parameters(
        spec, [0, 1], resume=True, progress=lambda done, total, loss: epochs.append(done), **given
    )
    whole, undisturbed = train_parameters(spec, [0, 1], engine=engine, snapshots=[1], progress=False)
    assert epochs == [3]
    for name, tensor in whole.parameters().items():
        assert torch.equal(resumed.parameters()[name], tensor)
        assert torch.equal(run.snapshots[1][name], undisturbed.snapshots[1][name])
    assert [row["accuracy"] for row in run.history] == [row["accuracy"] for row in undisturbed.history]


def test_frozen_embeddings_stay_and_weight_decay_acts() -> None:
    recipe = RECIPE.model_copy(update={"weight_decay": 0.5})
    spec = histogram("dot", embedding="frozen", origin=recipe)
    engine, _ = train_parameters(spec, [1], progress=False)
    start = TaskModel(spec, seed=1)
    assert engine.name == "stacked"
    assert torch.equal(engine.parameters()["embed.W_E"][0], start.embed.W_E)
    (reference,) = train(spec, [1], engine="reference")
    torch.testing.assert_close(engine.parameters()["unembed.W_in"][0], reference.unembed.W_in, rtol=1e-9, atol=1e-9)


def test_engines_are_chosen_by_spec_and_device() -> None:
    for model in SIX:
        spec = histogram(model)
        assert choose_engine(spec, make_task(spec.task), CPU).name == "fused"
        assert choose_engine(spec, make_task(spec.task), torch.device("cuda")).name == "stacked"
    for name, spec in SPECS.items():
        if name not in SIX:
            assert choose_engine(spec, make_task(spec.task), CPU).name == "stacked", name
    task = make_task(histogram("dot").task)
    for changes, reason in (
        ({"layers": (Layer(d_head=6), Layer(d_head=6))}, "one layer without positions"),
        ({"positions": "learned", "max_length": 5}, "one layer without positions"),
        ({"direction": "causal"}, "bidirectional layers"),
        ({"layers": (Layer(d_head=6, mlp=MLP(d_mlp=3)),)}, "MLP block"),
        ({"layers": (Layer(d_head=6, norm="post"),)}, "post-layer-norm"),
    ):
        with pytest.raises(InterpError, match=f"stacked cannot train .*{reason}"):
            choose_engine(histogram("dot", **changes), task, CPU, "stacked")
