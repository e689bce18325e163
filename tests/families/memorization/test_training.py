"""The engine of conditional tables: its steps against Adam on the task model itself."""

from pathlib import Path

import numpy as np
import pytest
import torch
from closeness import close
from context_specs import EXACT, SPECS, TASK
from numpy_forward import forward

import interp
from interp.families.memorization import bigram, kgram, lookup, rank_d_optimum, table, training
from interp.families.memorization.constructions.models import memorization_spec
from interp.models.architecture.parameters import initialize
from interp.models.spec import Layer, ModelSpec, TaskRef, Training
from interp.training.train import train_parameters


@pytest.mark.parametrize("name", SPECS)
def test_the_stacked_forward_is_the_numpy_forward(name: str) -> None:
    spec = SPECS[name]
    drawn = [initialize(spec, TASK, seed) for seed in (0, 1)]
    stacked = {key: torch.stack([one[key] for one in drawn]) for key in drawn[0]}
    contexts = torch.tensor(TASK.contexts)
    expected = np.array(
        [
            [forward(spec, {k: v.numpy() for k, v in one.items()}, list(c))[0][-1] for c in TASK.contexts]
            for one in drawn
        ]
    )
    close(training.context_logits(spec, TASK, stacked, contexts[None]), expected, atol=1e-12)
    own = torch.stack([contexts, contexts.flip(0)])  # each model its own contexts
    close(training.context_logits(spec, TASK, stacked, own)[1], expected[1, ::-1], atol=1e-12)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.thinned(2)
def test_exact_steps_are_those_of_adam_on_the_task_model(name: str) -> None:
    spec = SPECS[name]
    (trained,) = interp.train(spec, [3], engine="exact-kl", progress=False)
    model = interp.build(spec, seed=3)
    leaves = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam(leaves, lr=0.02)
    pi, prior = torch.from_numpy(TASK.conditional.copy()), torch.from_numpy(TASK.prior.copy())
    losses = []
    for step in range(7):
        adam.param_groups[0]["lr"] = 0.02 * 0.5 * (1 + np.cos(np.pi * step / 7))
        logs = model(torch.tensor(TASK.contexts))[:, -1].log_softmax(-1)
        loss = (prior[:, None] * pi * (pi.log() - logs)).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    assert trained.history["loss"][1:].tolist() == pytest.approx(losses, abs=1e-10)
    for mine, theirs in zip(trained.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=0)


def test_a_pass_over_the_sample_is_the_reference_engine_s() -> None:
    recipe = Training(epochs=1, batch_size=2048, learning_rate=0.01, final_learning_rate=0.001, schedule="linear")
    spec = memorization_spec(TASK, 3, 2, dtype="float64", origin=recipe)
    ours = interp.train(spec, [0, 5], engine="exact-kl", progress=False)
    theirs = interp.train(spec, [0, 5], engine="reference", progress=False)
    for one, other in zip(ours, theirs, strict=True):
        assert one.history["loss"][1] == pytest.approx(other.history["loss"][1], abs=1e-10)
        for mine, reference in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine, reference, atol=1e-9, rtol=0)


def test_seeds_do_not_feel_each_other_and_accuracy_is_exact() -> None:
    spec = memorization_spec(TASK, 3, 4, origin=EXACT)
    together, alone = (interp.train(spec, seeds, engine="exact-kl", progress=False) for seeds in (range(3), [2]))
    assert together[2].history["loss"].tolist()[1:] == pytest.approx(alone[0].history["loss"].tolist()[1:], abs=1e-6)
    for model in together:
        batch = TASK.all_contexts()
        right = (model.predict(batch.tokens) == batch.labels).double().numpy()
        assert model.history["accuracy"].iloc[-1] == pytest.approx(float(TASK.prior @ right), abs=1e-6)


@pytest.mark.slow
def test_training_reaches_the_optimum_and_never_passes_it() -> None:
    task = kgram(N=3, M=5, k=2, seed=4)
    recipe = Training(epochs=500, data="exact", learning_rate=0.05, schedule="cosine", init="torch")
    engine, run = train_parameters(memorization_spec(task, 2, 5, origin=recipe), range(4), progress=False)
    losses = [row["loss"] for row in run.history if row["epoch"] == 500]
    best = rank_d_optimum(task, 2).kl
    assert engine.name == "exact-kl"
    assert min(losses) == pytest.approx(best, rel=0.02)
    assert min(losses) > best - 1e-6


def test_interrupted_runs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = memorization_spec(TASK, 3, 2, origin=EXACT)
    whole = interp.train(spec, [0, 1], engine="exact-kl", progress=False)

    def stop(done: int, total: int, loss: float) -> None:
        if done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("interp.training.train.SAVE_EVERY_SECONDS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        interp.train(spec, [0, 1], engine="exact-kl", folder=tmp_path, progress=stop)
    resumed = interp.train(spec, [0, 1], engine="exact-kl", folder=tmp_path, resume=True, progress=False)
    for one, other in zip(whole, resumed, strict=True):
        assert all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_table_of_your_own_is_given_beside_the_spec() -> None:
    own = table(np.array([[0.3, 0.7], [0.8, 0.2], [0.5, 0.5]]))
    spec = memorization_spec(own, 1, 1, origin=EXACT)
    (model,) = interp.train(spec, task=own, engine="exact-kl", progress=False)
    assert model.task is own
    with pytest.raises(interp.InterpError, match=r"task is .*SHA-256 [0-9a-f]{64}, not bigram with M = 2, N = 3$"):
        interp.train(spec, task=bigram(N=3, M=2))
    with pytest.raises(interp.InterpError, match="sha256"):
        interp.train(spec)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (SPECS["full"].replace(origin=Training(data="fresh", samples_per_epoch=10)), "data = 'exact'"),
        (SPECS["full"].replace(readout_at="all"), "last token"),
        (
            ModelSpec(task=TaskRef(name="histogram"), d_model=2, layers=(Layer(d_head=2),), origin=EXACT),
            "not a conditional table",
        ),
    ],
)
def test_refusals(spec: ModelSpec, word: str) -> None:
    with pytest.raises(interp.InterpError, match=word):
        interp.train(spec, engine="exact-kl")
    if spec.training.data == "exact":
        with pytest.raises(interp.InterpError, match="it trains on samples"):
            interp.train(spec, engine="reference")


def test_look_up_without_noise_has_a_finite_loss() -> None:
    task = lookup(N=3, M=4, k=2)
    (model,) = interp.train(memorization_spec(task, 2, 3, origin=EXACT), engine="exact-kl", progress=False)
    assert np.isfinite(model.history["loss"][1:]).all()
