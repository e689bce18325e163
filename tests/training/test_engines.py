"""Engines against the reference: same loss, same gradients, same models; snapshots; resuming after an interruption.

The optimizer of those in torch is compared with torch's own.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from short_count01 import Short
from torch import Tensor

import interp
from interp.errors import InterpError
from interp.models.architecture.reduced import CountedRows, counted_reads, reduced_outputs, token_tables
from interp.models.spec import Bias, Layer, ModelSpec, Training
from interp.tasks import IGNORED
from interp.training.engines.engine import StackedAdam, derived_seed, learning_rate
from interp.training.engines.reference import batch_loss
from interp.training.train import choose_engine, train

CPU = torch.device("cpu")


def small_spec(**changes: object) -> ModelSpec:
    recipe = Training(epochs=4, batch_size=16, learning_rate=1e-2, schedule="cosine", init="torch")
    fields = {
        "task": {"name": "count01-short"}, "d_model": 6, "readout_at": "=", "dtype": "float64", "origin": recipe,
        "layers": [Layer(n_heads=2, d_head=3, norm="pre", bias=Bias(q=True, k=True, v=True, o=True))],
    }  # fmt: skip
    return ModelSpec(**{**fields, **changes})


VARIANTS = {
    "pre-norm, all biases": {},
    "a large eps": {"layers": [Layer(n_heads=2, d_head=3, norm="pre", norm_eps=0.3)]},
    "no norm, no bias": {"layers": [Layer(n_heads=3, d_head=2, scale=0.7)]},
    "full matrices": {"layers": [Layer(n_heads=2, d_head=6, query_key="full", value_output="full")]},
    "identity values, no readout bias": {
        "readout_bias": False,
        "layers": [Layer(n_heads=1, d_head=6, value_output="identity", scale="inv_sqrt_d_model")],
    },
    "bidirectional": {"direction": "bidirectional"},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_count_space_has_the_sequence_model_s_gradients(variant: str, dtype: torch.dtype) -> None:
    spec = small_spec(**VARIANTS[variant])
    models = [interp.TaskModel(spec, seed=seed, dtype=dtype) for seed in (3, 4)]
    batch = models[0].task.sample(24, "train", seed=5)
    if spec.direction == "bidirectional":  # padding is [EOS] there, which the mask would hide: take equal lengths
        batch = models[0].task.sentences(torch.tensor([[2, 1, 3], [1, 3, 2], [0, 0, 6], [3, 3, 0]]), seed=1)
    classes = models[0].task.classes(batch)
    rows = counted_reads(spec, 8, batch, classes)
    flat = CountedRows(rows.query.flatten()[None], rows.counts.flatten(0, 1)[None].to(dtype))
    stacked = {
        name: torch.stack([dict(m.named_parameters())[name].detach() for m in models]).requires_grad_()
        for name, _ in models[0].named_parameters()
    }
    mask = torch.ones_like(batch.tokens) if spec.direction == "bidirectional" else None
    out = reduced_outputs(token_tables(spec, stacked), flat)
    right = classes[classes != IGNORED]
    torch.nn.functional.cross_entropy(out.flatten(0, 1), right.repeat(2)).mul(2).backward()
    tight = 1e-10 if dtype == torch.float64 else 2e-5
    for index, model in enumerate(models):
        expected = model(batch.tokens, attention_mask=mask)[classes != IGNORED]
        torch.testing.assert_close(out[index], expected, rtol=tight, atol=tight)
        torch.nn.functional.cross_entropy(expected, right).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(stacked[name].grad[index], parameter.grad, rtol=tight, atol=tight, msg=name)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_training_needs_no_gradients_of_the_caller(without: Callable[[], AbstractContextManager[None]]) -> None:
    trained = train(small_spec(), engine="reference", progress=False)[0]
    with without():
        again = train(small_spec(), engine="reference", progress=False)[0]
        assert not torch.is_grad_enabled()
    assert again.history.equals(trained.history)


def test_both_engines_train_the_same_models() -> None:
    spec = small_spec()
    fast, slow = train(spec, [0, 7], engine="count-space"), train(spec, [0, 7], engine="reference")
    for a, b in zip(fast, slow):
        for (name, mine), (_, its) in zip(a.named_parameters(), b.named_parameters()):
            torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-9, msg=name)
        assert a.history["loss"].to_list()[1:] == pytest.approx(b.history["loss"].to_list()[1:], rel=1e-9)
        assert a.history["accuracy"].to_list() == b.history["accuracy"].to_list()


@pytest.mark.parametrize("engine", ["count-space", "reference"])
def test_a_model_does_not_depend_on_neighbors_and_seeds_differ(engine: str) -> None:
    spec = small_spec()
    alone, together, again = (train(spec, seeds, engine=engine) for seeds in ([2], [0, 1, 2], [2]))
    parameters = dict(together[2].named_parameters())
    for (name, mine), (_, repeated) in zip(alone[0].named_parameters(), again[0].named_parameters()):
        torch.testing.assert_close(mine, parameters[name], rtol=1e-10, atol=1e-12)
        assert torch.equal(mine, repeated), f"{name} is not deterministic"
    assert not torch.equal(alone[0].embed.W_E, together[0].embed.W_E)


@pytest.mark.parametrize("engine", ["count-space", "reference"])
def test_snapshots_hold_the_models_of_their_epochs(engine: str) -> None:
    spec = small_spec()
    (model,) = train(spec, [1], snapshots=[0, 2, 4], engine=engine)
    assert list(model.snapshots) == [0, 2, 4]
    assert torch.equal(model.snapshots[0].embed.W_E, interp.TaskModel(spec, seed=1).embed.W_E)
    assert torch.equal(model.snapshots[4].embed.W_E, model.embed.W_E)
    shorter = small_spec(origin=spec.origin.model_copy(update={"epochs": 2, "schedule": "constant"}))
    two_epochs = train(shorter, [1], engine=engine)
    assert not torch.equal(model.snapshots[2].embed.W_E, two_epochs[0].embed.W_E)  # another schedule, another model


@pytest.mark.parametrize("engine", ["count-space", "reference"])
def test_an_interrupted_run_continues_where_it_stopped(engine: str, tmp_path, monkeypatch) -> None:
    """Nothing is saved on the way in so short a run: what the interruption itself saves must do."""
    monkeypatch.setattr("interp.training.train.SAVE_EVERY_SECONDS", 1e9)
    spec = small_spec()

    def interrupt(done: int, total: int, loss: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="epoch 2 of 4"):
        train(spec, [0, 1], snapshots=[1], engine=engine, folder=tmp_path, progress=interrupt)
    epochs = []
    resumed = train(spec, [0, 1], snapshots=[1], engine=engine, folder=tmp_path, resume=True,
                    progress=lambda done, total, loss: epochs.append(done))  # fmt: skip
    assert epochs == [3, 4]
    for a, b in zip(resumed, train(spec, [0, 1], snapshots=[1], engine=engine)):
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))
        assert torch.equal(a.snapshots[1].embed.W_E, b.snapshots[1].embed.W_E)
        assert a.history["loss"].to_list()[1:] == b.history["loss"].to_list()[1:]
    with pytest.raises(InterpError, match="belongs to another run: seeds"):
        train(spec, [5], snapshots=[1], engine=engine, folder=tmp_path, resume=True)
    with pytest.raises(InterpError, match="has the state of a run: resume=True"):
        train(spec, [0, 1], snapshots=[1], engine=engine, folder=tmp_path)


def test_a_broken_state_file_is_refused_in_one_sentence(tmp_path) -> None:
    (tmp_path / "training-state.safetensors").write_bytes(b"\x80\x04 pickle")
    with pytest.raises(InterpError, match="is not a training state of interp"):
        train(small_spec(), [0], folder=tmp_path, resume=True)


def test_loss_at_the_start_is_the_entropy_of_a_guess() -> None:
    """An untrained model with tiny weights puts 1/8 on each of 8 tokens: its loss is ln 8."""
    spec = small_spec(origin=Training(epochs=1, batch_size=16, init_std=1e-6, learning_rate=1e-12))
    (model,) = train(spec, [0], engine="reference")
    assert model.history["loss"][1] == pytest.approx(math.log(8), abs=1e-4)
    assert float(batch_loss(model, model.task.dataset("train")).detach()) == pytest.approx(math.log(8), abs=1e-4)


def test_schedules() -> None:
    cosine = Training(epochs=10, learning_rate=1.0, schedule="cosine", final_learning_rate=0.2)
    assert [learning_rate(cosine, step, 1) for step in (0, 5, 10)] == pytest.approx([1.0, 0.6, 0.2])
    linear = Training(epochs=10, learning_rate=1.0, schedule="linear", warmup_epochs=2)
    assert [learning_rate(linear, step, 1) for step in (0, 1, 2, 6, 10)] == pytest.approx([0.5, 1.0, 1.0, 0.5, 0.0])


def test_seeds_of_different_purposes_differ() -> None:
    drawn = {
        derived_seed(spec, seed, what, epoch)
        for spec in "ab"
        for seed in (0, 1)
        for what in ("x", "y")
        for epoch in (1, 11)
    }
    assert len(drawn) == 16
    assert all(0 <= number < 2**63 for number in drawn)


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"seeds": []}, "seeds is empty"),
    ({"seeds": [1, 1]}, "holds a value twice"),
    ({"seeds": [-1]}, "must be integers from 0"),
    ({"snapshots": [9]}, "snapshot at epoch 9: the recipe has 4 epochs"),
    ({"engine": "warp"}, "unknown engine 'warp'"),
    ({"spec": small_spec(positions="learned", max_length=5)}, "count01-short have 2[0-9] tokens; max_length is 5$"),
    (
        {"spec": small_spec(task="parity", readout_at="last")},
        r'parity has no fixed data set: train it with data="fresh", samples_per_epoch=...$',
    ),
])  # fmt: skip
def test_bad_input_is_one_sentence(arguments: dict, sentence: str) -> None:
    with pytest.raises(InterpError, match=sentence):
        train(**{"spec": small_spec(), "seeds": [0], **arguments})


def test_engines_are_chosen_by_what_the_spec_allows() -> None:
    assert choose_engine(small_spec(), Short(), CPU).name == "count-space"
    learned = small_spec(positions="learned", max_length=30)
    assert choose_engine(learned, Short(), CPU).name == "vmap"
    with pytest.raises(InterpError, match=r"count-space cannot train .*needs one layer without positions"):
        choose_engine(learned, Short(), CPU, "count-space")


def test_what_cannot_be_trained_is_said() -> None:
    with pytest.raises(InterpError, match="is the exact construction count01/minimal: there is nothing to train"):
        train(interp.build("count01/minimal").spec)
    with pytest.raises(InterpError, match="unknown device 'tpu9'"):
        train(small_spec(), device="tpu9")
    if not torch.cuda.is_available():
        with pytest.raises(InterpError, match="torch finds no CUDA device"):
            train(small_spec(), device="cuda")


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
