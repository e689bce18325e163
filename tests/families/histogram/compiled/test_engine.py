"""The compiled engine: when compiling pays, who is told, how an interruption ends, what it trains."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.errors import InterpError
from interp.families.histogram import Histogram
from interp.families.histogram.compiled import engine as compiled
from interp.families.histogram.compiled.engine import FusedEngine
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.spec import ModelSpec, Training
from interp.training.engines.vmap import VmapEngine
from interp.training.train import choose_engine, train_parameters

CPU, TASK = torch.device("cpu"), Histogram(T=8, L=5, zero_class=True)


def spec_of(epochs: int) -> ModelSpec:
    recipe = Training(epochs=epochs, batch_size=32, data="fresh", samples_per_epoch=320)
    return histogram_spec("dot", TASK, 4, 4, origin=recipe)


class Still(FusedEngine):
    """An engine whose compiled code is a function of the test's."""

    name = "still"

    def touch(self) -> None:
        self.work()


def still() -> Still:
    return Still(spec_of(1), TASK, [0], CPU, torch.float32)


@pytest.fixture(autouse=True)
def nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "compiled_mark", lambda dtype: tmp_path / f"{dtype}.compiled")


def test_auto_compiles_where_that_saves_more_than_it_takes(tmp_path: Path) -> None:
    """10 steps an epoch, of which each saves 400 us: 25 s are worth 6250 epochs of one model."""
    short, long = spec_of(6000), spec_of(6500)
    assert choose_engine(short, TASK, CPU, models=1) is VmapEngine
    assert choose_engine(long, TASK, CPU, models=1) is FusedEngine
    assert choose_engine(short, TASK, CPU, models=2) is FusedEngine
    assert choose_engine(short, TASK, CPU) is FusedEngine  # a sweep
    assert choose_engine(short, TASK, CPU, "fused", 1) is FusedEngine
    (tmp_path / "float32.compiled").touch()
    assert choose_engine(short, TASK, CPU, models=1) is FusedEngine


def test_who_waits_is_told_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    monkeypatch.setattr(compiled, "PATIENCE", 0.0)
    engine = still()
    engine.work = lambda: told.wait(10)
    engine.prepare(say)
    assert said == ["compiling the still engine, about 25 s, once"]
    assert (tmp_path / "float32.compiled").exists()
    monkeypatch.setattr(compiled, "PATIENCE", 60.0)
    engine.work = lambda: None
    engine.prepare(said.append)
    assert len(said) == 1


def test_an_interrupted_compilation_leaves_no_mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(engine: FusedEngine) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(FusedEngine, "touch", interrupted)
        with pytest.raises(KeyboardInterrupt, match="before the first epoch, while compiling"):
            train_parameters(spec_of(1), engine="fused", task=TASK, progress=False)
    assert not (tmp_path / "float32.compiled").exists()
    engine = Still(spec_of(1), TASK, [0], CPU, torch.float32)
    engine.work = lambda: None
    engine.prepare(print)


def test_an_interrupted_run_resumes_with_its_own_engine(tmp_path: Path) -> None:
    def stop(done: int, total: int, loss: float) -> None:
        raise KeyboardInterrupt

    spec = spec_of(3)
    with pytest.raises(KeyboardInterrupt):
        train_parameters(spec, engine="reference", folder=tmp_path, progress=stop)
    runner, run = train_parameters(spec, folder=tmp_path, resume=True, progress=False)
    assert (runner.name, run.epoch) == ("reference", 3)


@pytest.mark.slow
def test_an_interrupted_compiled_run_continues_where_it_stopped(tmp_path: Path) -> None:
    def stop(done: int, total: int, loss: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    spec = spec_of(3)
    with pytest.raises(KeyboardInterrupt, match="epoch 2 of 3"):
        train_parameters(spec, [0, 1], engine="fused", folder=tmp_path, progress=stop)
    resumed, run = train_parameters(spec, [0, 1], folder=tmp_path, resume=True, progress=False)
    whole, undisturbed = train_parameters(spec, [0, 1], engine="fused", progress=False)
    assert all(torch.equal(resumed.parameters()[name], tensor) for name, tensor in whole.parameters().items())
    assert [row["accuracy"] for row in run.history] == [row["accuracy"] for row in undisturbed.history]


@pytest.mark.parametrize("kind", ["lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax"])
def test_each_histogram_model_is_compiled_on_the_cpu_alone(kind: str) -> None:
    task = Histogram(T=8, L=5, zero_class=True, bos=kind.startswith("bos"))
    spec = histogram_spec(kind, task, 4, 4, origin=spec_of(1).training)
    assert choose_engine(spec, task, CPU) is FusedEngine
    assert choose_engine(spec, task, torch.device("cuda")) is VmapEngine
    decayed = spec.replace(origin=spec.training.model_copy(update={"weight_decay": 0.5}))
    assert choose_engine(decayed, task, CPU) is VmapEngine


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(InterpError, match="the fused engine trains in float32 or float64"):
        FusedEngine(spec_of(1), TASK, [0], CPU, torch.bfloat16)


def test_epochs_go_on_with_the_steps_and_rates_of_those_before() -> None:
    class Looks(FusedEngine):
        def _train(self, index: int, n: int, seed: int, rates: np.ndarray, done: int) -> float:
            seen.append((done, n, rates.tolist()))
            return 0.0

    recipe = Training(epochs=3, batch_size=32, data="fresh", samples_per_epoch=97, schedule="linear", warmup_epochs=1)
    engine, seen = Looks(histogram_spec("dot", TASK, 4, 4, origin=recipe), TASK, [0], CPU, torch.float32), []
    for epoch in (1, 2, 3):
        engine.train_one(0, epoch)
    assert [(done, n) for done, n, _ in seen] == [(0, 97), (4, 97), (8, 97)]
    shares = [1 / 4, 2 / 4, 3 / 4, 1, *(1 - step / 8 for step in range(8))]  # the last of four batches has one row
    assert [rate for *_, rates in seen for rate in rates] == pytest.approx([recipe.learning_rate * x for x in shares])


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
@pytest.mark.parametrize("was_on", [False, True])
def test_an_epoch_flushes_subnormals_and_restores_the_thread(seeds: list[int], was_on: bool) -> None:
    def vanishes() -> bool:
        return bool(np.float32(1e-40) * np.float32(1) == 0)

    seen: list[bool] = []

    class Looks(FusedEngine):
        def train_one(self, index: int, epoch: int) -> float:
            seen.append(vanishes())
            return 0.0

        def accuracy_of(self, index: int) -> float:
            return 0.0

    torch.set_flush_denormal(was_on)
    try:
        Looks(spec_of(1), TASK, seeds, CPU, torch.float32).run_epoch(0)
        assert vanishes() == was_on
    finally:
        torch.set_flush_denormal(False)
    assert seen == [True] * len(seeds)
