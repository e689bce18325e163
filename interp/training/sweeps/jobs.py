"""The jobs of a sweep: a worker trains several seeds of one spec together and returns the outcomes.

Jobs and outcomes are plain data, so any pool can transfer them. This module imports neither pandas nor
transformer_lens; an engine that needs the latter imports it.
"""

import hashlib
import math
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from interp.models.spec import ModelSpec, TaskRef
from interp.training.sweeps.grid import Grid
from interp.training.sweeps.table import Key, Row

LIBRARIES = ("interp", "torch", "numpy", "numba")
HASHED = 32
"""Inputs of each split of a task that are compared when a sweep goes on."""


@dataclass(frozen=True)
class Job:
    """Seeds of one spec that train together.

    work: estimate of the time, comparable within a sweep. task_file: the file that registers a user's own task, because
    workers know only interp's tasks. keep: whether outcomes hold the models' weights. size: parameters of a model.
    inputs: the hash of the task's inputs; see `hashes_of_inputs`.
    """

    spec: dict[str, Any]
    spec_id: str
    seeds: tuple[int, ...]
    epochs: int
    axes: dict[str, Any] = field(default_factory=dict)
    engine: str = "auto"
    device: str = "cpu"
    work: float = 1.0
    task_file: str = ""
    keep: bool = False
    size: int = 0
    inputs: str = ""


@dataclass(frozen=True)
class Outcome:
    """A finished run: its row, its loss and accuracy per epoch (empty if it failed), and its weights as safetensors."""

    row: Row
    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    weights: bytes = b""


def jobs_of(grid: Grid, rows: Mapping[Key, Row], device: str = "cpu", keep: bool = False) -> list[Job]:
    """Return the jobs for runs without a row and for failed runs, longest first."""

    from interp.models.architecture.parameters import as_device, parameter_shapes
    from interp.tasks import make_task
    from interp.tasks.registry import file_of
    from interp.training.train import choose_engine

    jobs, where, hashes = [], as_device(device), hashes_of_inputs(grid)
    for cell in grid.cells:
        spec_id = cell.spec.id
        left = [seed for seed in grid.seeds if rows.get((spec_id, seed), {"error": "missing"})["error"]]
        if not left:
            continue
        task = make_task(cell.spec.task)
        together = choose_engine(cell.spec, task, where, grid.engine).seeds_together(cell.spec, where)
        size = sum(math.prod(shape) for shape in parameter_shapes(cell.spec, task).values())
        recipe, file = cell.spec.training, file_of(type(task))
        work = float(max(1, recipe.epochs) * (recipe.samples_per_epoch or 1) * size)
        for start in range(0, len(left), together):
            seeds = tuple(left[start : start + together])
            jobs.append(Job(
                cell.spec.to_dict(), spec_id, seeds, recipe.epochs, dict(cell.axes), grid.engine, device,
                work=work * len(seeds), task_file="" if file is None else str(file), keep=keep, size=size,
                inputs=hashes[spec_id],
            ))  # fmt: skip
    return sorted(jobs, key=lambda job: -job.work)


def hashes_of_inputs(grid: Grid) -> dict[str, str]:
    """Return, for each spec id of a grid, the hash of its task's inputs; see `hash_of_inputs`."""
    by_task = {task.model_dump_json(): task for task in (cell.spec.task for cell in grid.cells)}
    hashes = {name: hash_of_inputs(task) for name, task in by_task.items()}
    return {cell.spec.id: hashes[cell.spec.task.model_dump_json()] for cell in grid.cells}


def hash_of_inputs(ref: TaskRef) -> str:
    """Hash some inputs of a task and their labels, which says whether the file of a user's own task was changed.

    "" for a task that cannot draw any: its runs fail, and say why.
    """
    from interp.tasks import make_task

    task, found = make_task(ref), hashlib.sha256()
    try:
        for split in task.splits:
            batch = task.sample(HASHED, split, seed=0)
            for numbers in (batch.tokens, batch.lengths, batch.labels):
                found.update(repr(numbers.tolist()).encode())
    except Exception:  # code of somebody else may raise anything
        return ""
    return found.hexdigest()


def run_job(job: Job) -> list[Outcome]:
    """Train the job's seeds; an exception becomes the error of its rows."""
    try:
        return _train(job)
    except Exception as error:
        # A worker must survive a failing cell, including MemoryError and CUDA errors.
        message = str(error).strip().splitlines() or [""]
        return failed(job, f"{type(error).__name__}: {message[0]}")


def failed(job: Job, error: str) -> list[Outcome]:
    """Return the outcomes of a failed job."""
    return [Outcome(_row(job, seed, error=error)) for seed in job.seeds]


def _trainer(job: Job) -> Callable[..., Any]:
    """Return the training function, after registering a user's own task and limiting torch to one thread."""
    import torch

    from interp.tasks import registered_tasks
    from interp.tasks.registry import import_file
    from interp.training.train import train_parameters

    if job.task_file and job.spec["task"]["name"] not in registered_tasks():
        import_file(job.task_file)

    torch.set_num_threads(1)  # one worker per core is faster than many threads, and reproducible
    return train_parameters


def _train(job: Job) -> list[Outcome]:
    from interp.training.results import describe_divergence

    train_parameters = _trainer(job)
    start, cpu_start = time.perf_counter(), time.process_time()
    spec = ModelSpec.from_dict(job.spec)
    chosen = _engine_of(job, spec)
    engine, run = train_parameters(spec, job.seeds, engine=chosen, device=job.device, progress=False)
    seconds = (time.perf_counter() - start) / len(job.seeds)
    cpu_seconds = (time.process_time() - cpu_start) / len(job.seeds)
    outcomes = []
    for index, seed in enumerate(job.seeds):
        epochs = [entry for entry in run.of(engine, index) if entry["epoch"] > 0]
        loss, accuracy = ([entry[name] for entry in epochs] for name in ("loss", "accuracy"))
        if (error := describe_divergence(engine, run, index)) is not None:
            outcomes.append(Outcome(_row(job, seed, engine=engine.name, error=error)))
            continue
        row = _row(
            job, seed, accuracy=next(reversed(accuracy), None), best_accuracy=max(accuracy, default=None),
            loss=next(reversed(loss), None), epochs=run.epoch, engine=engine.name, seconds=round(seconds, 3),
            cpu_seconds=round(cpu_seconds, 3),
        )  # fmt: skip
        mine = {name: tensor[index] for name, tensor in engine.parameters().items()} if job.keep else {}
        outcomes.append(Outcome(row, loss, accuracy, as_bytes(mine) if mine else b""))
    return outcomes


def as_bytes(tensors: Mapping[str, Any]) -> bytes:
    """Return tensors as plain data, which any pool can transfer."""
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})


def _engine_of(job: Job, spec: ModelSpec) -> str:
    """Return the job's engine: for "auto", the fastest, even if it must compile, because a sweep compiles only once."""
    from interp.models.architecture.parameters import as_device
    from interp.tasks import make_task
    from interp.training.train import choose_engine

    return choose_engine(spec, make_task(spec.task), as_device(job.device), job.engine).name


def _row(job: Job, seed: int, **results: Any) -> Row:
    empty = dict.fromkeys(("accuracy", "best_accuracy", "loss", "epochs", "engine", "seconds", "cpu_seconds"))
    return {
        "spec_id": job.spec_id, "seed": seed, "axes": job.axes, **empty, "device": job.device, "error": "", "curve": "",
        "host": platform.node(), "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(), "spec": job.spec, "inputs": job.inputs, **results,
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of the installed libraries that a result may depend on."""
    installed = {}
    for library in LIBRARIES:
        with suppress(PackageNotFoundError):  # numba is optional
            installed[library] = version(library)
    return installed
