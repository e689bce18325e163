"""Training many seeds of one spec together, by the fastest engine that supports it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.errors import (
    InterpError,
    SpecError,
    as_path,
    check_one_of,
    check_size,
    of_type,
    quoted,
    short,
)
from interp.models.architecture.parameters import as_device, as_dtype, model_problems
from interp.models.spec import Construction, Layer, ModelSpec, Training
from interp.support.files import no_empty_folder
from interp.tasks import Task, make_task
from interp.tasks.registry import load_plug_ins
from interp.training import results
from interp.training.data import check_lengths
from interp.training.engines import reference as reference
from interp.training.engines import vmap as vmap
from interp.training.engines.engine import ENGINES as ENGINES
from interp.training.engines.engine import NEEDS_NUMBA, Engine

if TYPE_CHECKING:
    from interp.models.architecture.task_model import TaskModel

load_plug_ins("training")
load_plug_ins("compiled/engine")

SAVE_EVERY_SECONDS = 20.0

Progress = Callable[[int, int, float], None]
"""Called after each epoch with (epochs done, number of epochs, mean loss over the models)."""


def choose_engine(
    spec: ModelSpec, task: Task, device: torch.device, name: str = "auto", models: int | None = None
) -> type[Engine]:
    """Return the fastest engine that supports this spec, or the named one.

    models: number of models to train; a compiled engine is skipped if compiling would take longer than it saves. By
    default, as in sweeps, the time for compiling does not count. Raises InterpError, with the reasons, if no engine or
    not the named one can train the spec.
    """
    if name != "auto":
        check_one_of("engine", name, ("auto", *ENGINES))
        if (reason := ENGINES[name].refusal(spec, task, device)) is not None:
            raise InterpError(f"engine {name} cannot train {spec.id}: {reason}")
        return ENGINES[name]
    reasons = []
    for engine in ENGINES.values():
        if (reason := engine.refusal(spec, task, device)) is None:
            if models is None or engine.pays(spec, models):
                return engine
            reason = "compiling it would take longer"
        reasons.append(f"{engine.name}: {reason}")
    raise InterpError(f"no engine can train {spec.id}: " + "; ".join(reasons))


def train(
    spec: ModelSpec | str,
    seeds: Iterable[int] = (0,),
    *,
    task: Task | None = None,
    snapshots: Iterable[int] = (),
    engine: str = "auto",
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
    **sizes: Any,
) -> list[TaskModel]:
    """Train one model per seed, all together; up to rounding, a model does not depend on the others.

    spec: a ModelSpec, or the name of a task, with the fields of ModelSpec, Layer and Training that are not the defaults
    as `sizes`, such as d_model=32, n_layers=2, n_heads=4, epochs=20 (d_head is d_model / n_heads unless it is given).
    task: the spec's task, needed if it has your own tables, because the spec only has their hash.
    seeds: each determines a model's initialization and the order or sampling of its training data. snapshots: epochs
    whose models are kept in `.snapshots` (0 is the initialization). folder: where the state of the run is saved; with
    resume=True, an interrupted run continues; without it, a folder with a run or its checkpoints is refused. progress:
    None or True shows a bar after two seconds, False shows none; or a function of (epochs done, number of epochs, mean
    loss).

    Returns task models in the order of the seeds, each with `.history` (a DataFrame: epoch, loss in nats, accuracy on
    the validation data; row 0 is the initialization) and `.snapshots` (epoch -> TaskModel).
    Raises SpecError with all problems of the spec, InterpError for bad seeds, snapshots or engines, and Diverged if a
    loss or weights are not finite; its `models` are those of the other seeds.

    Example:

        >>> fresh = {"data": "fresh", "samples_per_epoch": 64, "batch_size": 32}
        >>> models = interp.train("count01", seeds=range(2), d_model=8, n_heads=2, epochs=2, **fresh)
        >>> [model.seed for model in models], models[0].history["epoch"].tolist()
        ([0, 1], [0, 1, 2])
    """
    if isinstance(spec, str):
        spec = spec_of(spec, **sizes)
    elif sizes:
        raise InterpError(f"{', '.join(sizes)}: give sizes with a task's name, or in the spec, not with a ModelSpec")
    runner, run = train_parameters(
        spec, seeds, task=task, snapshots=snapshots, engine=engine, device=device, dtype=dtype, folder=folder,
        resume=resume, progress=progress,
    )  # fmt: skip
    lost = {
        seed: why for index, seed in enumerate(runner.seeds) if (why := results.describe_divergence(runner, run, index))
    }
    models = [_model(runner, run, index) for index, seed in enumerate(runner.seeds) if seed not in lost]
    if lost:
        raise results.Diverged(spec, lost, models)
    return models


def spec_of(task: str, n_layers: int = 1, **sizes: Any) -> ModelSpec:
    """Return the spec of a task's model with equal layers, from the fields of ModelSpec, Layer and Training by name.

    Raises InterpError for unknown tasks and fields, and SpecError with the spec's problems.
    """
    make_task(task)
    check_size("n_layers", n_layers)
    fields: dict[type[Any], dict[str, Any]] = {ModelSpec: {}, Layer: {}, Training: {}}
    known = ["n_layers", *(field for kind in fields for field in kind.model_fields if field not in _MADE)]
    for name, value in sizes.items():
        check_one_of("size", name, known)
        fields[next(kind for kind in fields if name in kind.model_fields)][name] = value
    d_model, n_heads = fields[ModelSpec].get("d_model"), fields[Layer].get("n_heads", 1)
    if d_model is None:
        raise InterpError(f"d_model is missing: interp.train({task!r}, d_model=32, n_heads=4)")
    if "d_head" not in fields[Layer] and isinstance(d_model, int) and isinstance(n_heads, int) and n_heads > 0:
        if d_model % n_heads:
            raise InterpError(f"d_model = {d_model} is not a multiple of n_heads = {n_heads}: give d_head, too")
        fields[Layer]["d_head"] = d_model // n_heads
    layers, recipe = [dict(fields[Layer]) for _ in range(n_layers)], {"kind": "training", **fields[Training]}
    return ModelSpec.from_dict({"task": task, "layers": layers, "origin": recipe, **fields[ModelSpec]})


_MADE = ("schema_version", "task", "layers", "origin", "kind")
"""Fields that spec_of makes."""


def train_parameters(
    spec: ModelSpec,
    seeds: Iterable[int] = (0,),
    *,
    task: Task | None = None,
    snapshots: Iterable[int] = (),
    engine: str = "auto",
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
) -> tuple[Engine, results.RunState]:
    """Train without making task models; return the engine, with its parameters, and the state of the run.

    Only the reference engine loads transformer_lens. Arguments and errors as in `train`.
    """
    if not isinstance(spec, ModelSpec):
        raise InterpError(
            f"train needs a ModelSpec, not {of_type(spec)}: interp.ModelSpec.from_toml(file) reads one, and "
            "model.spec is that of a model"
        )
    if isinstance(spec.origin, Construction):
        raise InterpError(
            f"{spec.id} is the exact construction {spec.origin.name}: there is nothing to train; to train its "
            "architecture, give the spec a recipe: spec.replace(origin=Training(...))"
        )
    spec, task = as_trained(spec, task)
    if task.ref != spec.task:
        raise InterpError(f"the spec's task is {spec.task}, not {task.ref}")
    if problems := model_problems(spec, task):
        raise SpecError(problems)
    check_lengths(spec, task)
    seeds, kept = _check_integers("seeds", seeds), _check_integers("snapshots", snapshots)
    if late := [epoch for epoch in kept if epoch > spec.training.epochs]:
        raise InterpError(f"snapshot at epoch {late[0]}: the recipe has {spec.training.epochs} epochs")
    where, kind = as_device(device), as_dtype(dtype or spec.dtype)
    if engine == "auto" and resume and folder is not None:
        engine = results.saved_engine(Path(folder)) or engine  # an interrupted run continues with its engine
    chosen = choose_engine(spec, task, where, engine, len(seeds) if engine == "auto" else None)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # a caller may have switched gradients off
        stack.enter_context(torch.enable_grad())
        if folder is not None:
            folder = as_path(folder, "a folder")
            stack.enter_context(no_empty_folder(folder))
            _make_folder(folder, seeds, resume)
        if engine == "auto" and progress is not False:
            _name_what_is_missing(spec, task, where, len(seeds), chosen)
        runner = chosen(spec, task, seeds, where, kind)
        key = results.run_key(spec.id, seeds, chosen.name, str(kind), kept)
        try:
            runner.prepare((lambda text: None) if progress is False else _say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted before the first epoch, while compiling") from None
        report = stack.enter_context(_progress_function(progress, f"training {len(seeds)} x {spec.id} ({chosen.name})"))
        return runner, _run(runner, kept, folder, key, resume, report)


def as_trained(spec: ModelSpec, task: Task | None = None) -> tuple[ModelSpec, Task]:
    """Return the spec that a model gets in training, read where its task says, and the task, by default its own."""
    if task is None:
        task = make_task(spec.task)
        spec = spec.replace(task=task.ref)  # drop explicit defaults, so that equal specs have equal ids
    if not isinstance(task, Task):
        raise InterpError(f"task = {quoted(task)} is not a task; the spec's own is made where none is given")
    return spec.read_as(task.readout), task


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@cache
def _say_once(text: str) -> None:
    _say(text)


def _name_what_is_missing(spec: ModelSpec, task: Task, device: torch.device, models: int, chosen: type[Engine]) -> None:
    """Print a message, once, if installing numba would allow a compiled engine."""
    if any(engine.refusal(spec, task, device) == NEEDS_NUMBA and engine.pays(spec, models)
           for engine in ENGINES.values()):  # fmt: skip
        _say_once(f"training with the {chosen.name} engine; the compiled one is many times faster and needs numba: "
                  "pip install numba")  # fmt: skip


def _make_folder(folder: Path, seeds: Sequence[int], resume: bool) -> None:
    """Make the folder of a run. Raises InterpError if files of a run would be replaced."""
    if os.path.isfile(folder / results.FILE):  # Path.is_file raises if a name is too long
        if not resume:
            raise InterpError(
                f"{short(folder)} has the state of a run: resume=True (--resume) continues it; name another folder, "
                f"or remove {results.FILE}, to start anew"
            )
        return
    for seed in seeds:
        if os.path.exists(folder / f"seed-{seed}.safetensors"):
            done = "this run is finished" if resume else "training would replace it"
            raise InterpError(f"{short(folder)} has seed-{seed}.safetensors: {done}; name another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InterpError(f"cannot make the folder {short(folder)}: {error.strerror or error}") from None


def _check_integers(name: str, values: Iterable[int]) -> list[int]:
    if not isinstance(values, Iterable):
        raise InterpError(f"{name} = {quoted(values)}: give several, such as range(5)")
    listed = list(values)
    if bad := [v for v in listed if isinstance(v, bool) or not isinstance(v, int) or v < 0]:
        raise InterpError(f"{name} must be integers from 0, not {quoted(bad[0])}")
    if len(set(listed)) != len(listed):
        raise InterpError(f"{name} = {listed} holds a value twice")
    if name == "seeds" and not listed:
        raise InterpError("seeds is empty: give at least one")
    return listed


def _run(
    engine: Engine, kept: list[int], folder: Path | None, key: dict[str, Any], resume: bool, report: Progress
) -> results.RunState:
    """Run the remaining epochs; save the state from time to time, and when interrupted."""
    run = results.load_state(folder, key) if folder is not None and resume else None
    epochs = engine.recipe.epochs
    if run is None:
        run = results.RunState()
        _record(run, engine, kept, torch.full((len(engine.seeds),), torch.nan), engine.evaluate())
    else:
        engine.load_state(run.engine)
    saved, held = time.monotonic(), -1  # held: the epoch whose end state is in run.engine
    try:
        while run.epoch < epochs:
            result = engine.run_epoch(run.epoch + 1)
            run.epoch += 1
            _record(run, engine, kept, result.loss, result.accuracy)
            if folder is not None:
                # Store it now, so that an interruption loses only the next epoch.
                run.engine, held = engine.state(), run.epoch
                if time.monotonic() - saved > SAVE_EVERY_SECONDS or run.epoch == epochs:
                    results.save_state(folder, key, run)
                    saved = time.monotonic()
            report(run.epoch, epochs, float(result.loss.mean()))
    except KeyboardInterrupt:
        if folder is not None and held == run.epoch:
            results.save_state(folder, key, run)
        raise KeyboardInterrupt(f"interrupted after epoch {run.epoch} of {epochs}") from None
    return run


def _record(run: results.RunState, engine: Engine, kept: Sequence[int], loss: Tensor, accuracy: Tensor) -> None:
    run.history += [
        {"seed": seed, "epoch": run.epoch, "loss": float(value), "accuracy": float(right)}
        for seed, value, right in zip(engine.seeds, loss, accuracy)
    ]
    if run.epoch in kept:
        run.snapshots[run.epoch] = {n: p.detach().cpu().clone() for n, p in engine.parameters().items()}


def _model(engine: Engine, run: results.RunState, index: int) -> TaskModel:
    import pandas as pd

    from interp.models.architecture.task_model import TaskModel

    def built(stacked: Mapping[str, Tensor]) -> TaskModel:
        mine = {name: tensor[index] for name, tensor in stacked.items()}
        return TaskModel(engine.spec, engine.task, mine, seed=seed, device=engine.device, dtype=engine.dtype)

    seed = engine.seeds[index]
    model = built(engine.parameters())
    model.history = pd.DataFrame(run.of(engine, index))
    model.summary = {key: value for key, value in run.summary(engine, index).items() if value == value}  # without NaN
    model.snapshots = {epoch: built(parameters) for epoch, parameters in sorted(run.snapshots.items())}
    return model


@contextmanager
def _progress_function(progress: Progress | bool | None, title: str) -> Iterator[Progress]:
    """Yield a progress function: the caller's, one without effect, or that of a bar that appears after two seconds."""
    if callable(progress):
        yield progress
    elif progress is False:
        yield lambda done, total, loss: None
    else:
        from interp.support.progress import LateBar

        with LateBar(title) as bar:
            yield lambda done, total, loss: bar.update(done, total, f"loss {loss:.4f}")
