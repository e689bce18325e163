"""The vmap engine against the reference: outputs, gradients and trained models of every architecture, at 1e-10."""

from typing import Any

import pytest
import torch
from short_count01 import Short

from interp.errors import InterpError
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef, Training
from interp.tasks import IGNORED, make_task
from interp.training import data, engines
from interp.training.engines import reference
from interp.training.engines.vmap import VmapEngine, targets_of
from interp.training.train import choose_engine, train

CPU = torch.device("cpu")
ALL = Bias(q=True, k=True, v=True, o=True)
RECIPE = Training(
    epochs=2, batch_size=5, data="fresh", samples_per_epoch=12, learning_rate=1e-2, init="torch", schedule="cosine",
    optimizer="adamw", weight_decay=0.1,
)  # fmt: skip
MAX = TaskRef(name="max-of-k", parameters={"K": 3, "v": 5})
SHORT = TaskRef(name="one", parameters={"length": 6, "shortest": 2})
HISTOGRAM = TaskRef(name="histogram", parameters={"T": 6, "L": 5})


def spec_of(task: TaskRef, layers: list[dict[str, Any]], **fields: Any) -> ModelSpec:
    built = tuple(Layer(**{"n_heads": 2, "d_head": 3, **layer}) for layer in layers)
    return ModelSpec(**{"task": task, "d_model": 6, "dtype": "float64", "origin": RECIPE, "layers": built, **fields})


ENCODER = {"direction": "bidirectional", "readout": "scalar", "decision": "sigmoid", "readout_at": "[CLS]"}
SPECS = {
    "one layer, no positions": spec_of(MAX, [{}], readout_at="="),
    "two layers, pre-norm, learned positions, final norm": spec_of(MAX, [{"norm": "pre", "bias": ALL}] * 2,
        positions="learned", max_length=4, readout_at="=", final_norm="layer_norm"),
    "MLP in one of two layers, read at the last": spec_of(MAX, [{"mlp": MLP(d_mlp=7)}, {}], positions="learned",
        max_length=4, readout_at="last", readout_bias=False),
    "encoder, post-norm, padding, learned positions": spec_of(SHORT, [{"norm": "post", "mlp": MLP(d_mlp=4,
        activation="gelu"), "bias": ALL}] * 3, positions="learned", max_length=7, **ENCODER),
    "encoder, formula, current length": spec_of(SHORT, [{"norm": "post", "mlp": MLP(d_mlp=4), "log_length":
        "current"}] * 2, positions="fraction", **ENCODER),
    "encoder, sinusoids, training length": spec_of(SHORT, [{"log_length": 6, "scale": 0.3}] * 2,
        positions="sinusoidal", **ENCODER),
    "RMS norms, rotary, grouped, gated, tied": spec_of(TaskRef(name="modular-addition", parameters={"p": 5}),
        [{"n_heads": 4, "d_head": 4, "norm": "pre", "norm_kind": "rms", "key_value_heads": 2, "query_key_norm": True,
        "mlp": MLP(d_mlp=5, activation="silu", gated=True, bias=False)}] * 2, positions="rotary",
        positions_enter="attention", final_norm="rms_norm", tied_embeddings=True, readout_at="=", n_out=6,
        rotary_base=20.0),
    "adjacent pairs, gates with biases, all positions": spec_of(TaskRef(name="induction", parameters={"v": 6,
        "length": 8, "shortest": 2, "longest": 5}), [{"norm": "post", "norm_kind": "rms", "bias": ALL, "n_heads": 2,
        "key_value_heads": 1, "mlp": MLP(d_mlp=5, activation="gelu_new", gated=True)}], positions="rotary",
        positions_enter="attention", rotary_dim=2, rotary_pairs="adjacent"),
    "ALiBi, read at the last": spec_of(MAX, [{"norm": "pre", "mlp": MLP(d_mlp=3, activation="gelu_new")}, {"norm":
        "pre"}], positions="alibi", positions_enter="attention", readout_at="last"),
    "ALiBi, all positions": spec_of(TaskRef(name="induction", parameters={"v": 6, "length": 8, "shortest": 2,
        "longest": 5}), [{}], positions="alibi", positions_enter="attention"),
    "encoder, rotary, padding": spec_of(SHORT, [{"n_heads": 4, "d_head": 4, "key_value_heads": 2, "mlp": MLP(d_mlp=4,
        activation="silu")}] * 2, positions="rotary", positions_enter="attention", **ENCODER),
    "induction, all positions": spec_of(TaskRef(name="induction", parameters={"v": 6, "length": 8, "shortest": 2,
        "longest": 5}), [{}, {}], positions="learned", max_length=9),
    "positions in attention alone": spec_of(MAX, [{}, {"norm": "none"}], positions="learned",
        positions_enter="attention", max_length=4, readout_at="="),
    "full and identity matrices, raw scores": spec_of(HISTOGRAM, [{"d_head": 6, "query_key": "full", "value_output":
        "identity", "normalizer": "none"}], direction="bidirectional", readout="relu_mlp", readout_width=4),
    "linear mixing, frozen embedding": spec_of(HISTOGRAM, [{"mixing": "linear", "value_output": "full", "d_head": 6,
        "scale": "inv_sqrt_d_model"}], direction="bidirectional", max_length=5, embedding="frozen"),
    "two answers a row": spec_of(TaskRef(name=Short.name), [{"norm": "pre"}], readout_at="=",
        origin=RECIPE.model_copy(update={"samples_per_epoch": 3, "batch_size": 2, "epochs": 1})),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.thinned(2)
def test_outputs_and_gradients_are_those_of_the_task_model(name: str) -> None:
    spec = SPECS[name]
    task = make_task(spec.task)
    engine = VmapEngine(spec, task, [3, 4], CPU, torch.float64)
    (group,) = engine.groups
    batch = task.sample(7, "train", seed=2)
    reads = targets_of(batch.tokens, data.targets(spec, task, batch))
    found = engine.logits(group, reads.tokens, reads.at)
    both = type(reads)(*(part.expand(2, *part.shape) for part in (reads.tokens, reads.at, reads.classes)))
    engine.losses(group, both).sum().backward()
    for index, seed in enumerate([3, 4]):
        model = TaskModel(spec, seed=seed)
        wanted = model(batch.tokens).gather(1, reads.at[..., None].expand(-1, -1, found.shape[-1]))
        read = reads.classes != IGNORED
        torch.testing.assert_close(found[index][read], wanted[read], rtol=1e-10, atol=1e-10)
        reference.batch_loss(model, batch).backward()
        for key, parameter in model.named_parameters():
            if parameter.requires_grad:
                torch.testing.assert_close(group.leaves[key].grad[index], parameter.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.thinned(7)
def test_it_trains_the_models_of_the_reference_engine(name: str) -> None:
    spec = SPECS[name]
    fast, slow = train(spec, [0, 5, 6], engine="vmap"), train(spec, [0, 5, 6], engine="reference")
    for mine, its in zip(fast, slow):
        for (key, parameter), (_, wanted) in zip(mine.named_parameters(), its.named_parameters()):
            torch.testing.assert_close(parameter, wanted, rtol=1e-10, atol=1e-10, msg=key)
        assert mine.history["loss"].to_list()[1:] == pytest.approx(its.history["loss"].to_list()[1:], rel=1e-10)
        assert mine.history["accuracy"].to_list() == pytest.approx(its.history["accuracy"].to_list(), abs=1e-12)


def test_accuracy_does_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS["one layer, no positions"]
    task = make_task(spec.task)
    batch = task.sample(11, "test", seed=2)
    engine = VmapEngine(spec, task, [3, 4], CPU, torch.float64)
    engine.held_out = batch
    monkeypatch.setattr(engines.vmap, "SCORES_AT_ONCE", 1)  # a row at a time
    wanted = [
        float((TaskModel(spec, seed=seed).predict(batch.tokens) == batch.labels).double().mean()) for seed in (3, 4)
    ]
    assert max(wanted) > 0
    assert engine.evaluate().tolist() == pytest.approx(wanted)


def test_more_models_than_train_together_are_trained_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS["one layer, no positions"]
    whole = train(spec, range(5), engine="vmap")
    monkeypatch.setattr("interp.training.engines.vmap.TOGETHER", {"cpu": 2})
    for a, b in zip(whole, train(spec, range(5), engine="vmap")):
        assert all(torch.allclose(p, q, rtol=1e-12, atol=1e-12) for p, q in zip(a.parameters(), b.parameters()))


def test_a_fixed_data_set_has_the_reference_engine_s_order() -> None:
    task = TaskRef(name="modular-addition", parameters={"p": 5, "share": 0.5})
    recipe = Training(epochs=3, batch_size=4, optimizer="adamw", weight_decay=1.0, learning_rate=1e-2, init="torch")
    spec = spec_of(task, [{"mlp": MLP(d_mlp=4)}], positions="learned", max_length=3, readout_at="=", origin=recipe)
    for mine, its in zip(train(spec, [1, 2], engine="vmap"), train(spec, [1, 2], engine="reference")):
        for parameter, wanted in zip(mine.parameters(), its.parameters()):
            torch.testing.assert_close(parameter, wanted, rtol=1e-10, atol=1e-10)


def test_reads_are_few_positions_or_all_in_order() -> None:
    tokens = torch.arange(12).view(2, 6)
    classes = torch.full((2, 6), IGNORED)
    classes[0, 4], classes[1, 1], classes[1, 5] = 7, 8, 9
    reads = targets_of(tokens, classes)
    assert reads.at[1].tolist() == [1, 5]
    assert reads.classes.tolist() == [[7, IGNORED], [8, 9]]
    classes[0, :5] = 1
    assert targets_of(tokens, classes).at.tolist() == [list(range(6))] * 2


def test_it_is_chosen_where_no_engine_knows_more() -> None:
    spec = SPECS["two layers, pre-norm, learned positions, final norm"]
    assert choose_engine(spec, make_task(spec.task), CPU) is VmapEngine
    indicator = spec.replace(readout="scalar", decision="indicator", tolerance=0.1)
    with pytest.raises(InterpError, match="an indicator has no gradient"):
        choose_engine(indicator, make_task(spec.task), CPU, "vmap")


def test_decoupled_weight_decay_shrinks_what_has_no_gradient() -> None:
    """One step of AdamW takes a token that no row holds to p (1 - rate * decay); Adam would leave it to its moments."""
    recipe = Training(epochs=1, batch_size=3, data="fresh", samples_per_epoch=3, learning_rate=0.5, optimizer="adamw",
                      weight_decay=0.25, init="torch")  # fmt: skip
    spec = spec_of(TaskRef(name="max-of-k", parameters={"v": 40}), [{}], readout_at="=", origin=recipe)
    rows = data.fresh_epoch(spec, make_task(spec.task), seed=1, epoch=1).tokens
    for engine in ("vmap", "reference"):
        (model,) = train(spec, [1], engine=engine)
        shrunk = TaskModel(spec, seed=1).embed.W_E * (1 - 0.5 * 0.25)
        kept = torch.isclose(model.embed.W_E, shrunk, rtol=1e-14).all(1)
        assert (~kept).nonzero()[:, 0].tolist() == rows.unique().tolist()
