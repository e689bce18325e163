"""Run a sweep: train every run of a grid once, with several workers, into one durable table of this process.

`estimate` counts a sweep's runs without training. Progress is a bar on a terminal or in a notebook, elsewhere a line
every half minute, on standard error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interp.errors import InterpError, as_path, check_size
from interp.models.spec import ModelSpec
from interp.support.progress import LateBar
from interp.training.sweeps.grid import Grid, read_grid
from interp.training.sweeps.jobs import Job, Outcome, failed, hashes_of_inputs, jobs_of, run_job
from interp.training.sweeps.pool import connected, run_here, run_on_dask
from interp.training.sweeps.table import FILE, Key, Row, RunTable, flat, key_of, read_rows, to_frame

if TYPE_CHECKING:
    import pandas as pd

ROW_BYTES, EPOCH_BYTES, WEIGHT_BYTES = 2500, 32, 4
"""Approximate bytes of a run's row in the table, of an epoch in its curve, and of a weight in its checkpoint."""

LINE_EVERY_SECONDS = 30.0
"""Least time between two lines of news where there is no terminal."""


def sweep(
    path: str | Path | Grid,
    out: str | Path | None = None,
    workers: int = 2,
    resume: bool = True,
    *,
    dask: str | None = None,
    device: str = "cpu",
    models: bool = False,
    progress: bool = True,
) -> pd.DataFrame:
    """Train every run of a grid and return the table of runs; runs that the folder's table already has are skipped.

    path: a grid in TOML (see training.sweeps.grid), or a Grid. out: the table's folder, by default out/<grid name>.
    workers: number of processes on this machine, each with one thread. dask: the address of a Dask scheduler to use
    instead. resume: continue an interrupted sweep; False refuses a folder whose table has runs. models: keep each model
    as models/AXIS=VALUE/.../seed-N.safetensors, which interp.compare(folder) reads. Seeds of a cell train together;
    with fewer of them, as after an interruption, a model is the same up to rounding.

    Returns one row per run of the grid (columns: training.sweeps.table.RESULT_COLUMNS, after those of its axes), sorted
    by cell and seed. If a run failed, its row has the error, and the next sweep in the folder tries it again. You may
    kill the sweep at any moment: a row is appended when its run ends. Raises InterpError for a bad grid, with all its
    problems, for a table with runs of other settings, and if the table cannot be written.

    Example:

        >>> from pathlib import Path
        >>> _ = Path("grid.toml").write_text('''
        ... seeds = 2
        ... [base]
        ... d_model = 4
        ... layers = [{d_head = 2}]
        ... readout_at = "="
        ... task = {name = "count01"}
        ... origin = {kind = "training", epochs = 1, data = "fresh", samples_per_epoch = 64, batch_size = 32}
        ... [axes]
        ... d_model = [2, 4]
        ... ''')
        >>> table = interp.sweep("grid.toml", "out", workers=1)
        >>> table[["d_model", "seed"]].to_dict("list")
        {'d_model': [2, 2, 4, 4], 'seed': [0, 1, 0, 1]}
    """
    check_size("workers", workers)
    grid = path if isinstance(path, Grid) else read_grid(path, device)
    folder = folder_of(grid, out)
    if dask is not None:
        connected(dask).close()  # before a folder is made
    with RunTable(folder) as table:
        if table.rows and not resume:
            raise InterpError(
                f"{folder} has a table of {len(table.rows)} runs; continue it with resume (--resume), or choose "
                "another folder"
            )
        _check_specs(folder, grid, table.rows)
        jobs = jobs_of(grid, _kept(folder, table.rows) if models else table.rows, device, models)
        done, errors = grid.n_runs - sum(len(job.seeds) for job in jobs), 0
        with LateBar(f"sweep {grid.name}", lines=LINE_EVERY_SECONDS) as bar:
            results = run_here(run_job, jobs, workers) if dask is None else run_on_dask(run_job, jobs, dask)
            for job, result in results:
                lost = isinstance(result, BaseException)
                outcomes = failed(job, f"{type(result).__name__}: {result}") if lost else result
                _record(table, outcomes)
                done, errors = done + len(job.seeds), errors + sum(bool(outcome.row["error"]) for outcome in outcomes)
                if progress:
                    bar.update(done, grid.n_runs, f"{done} of {grid.n_runs} runs, {errors} failed")
        return to_frame(_of_grid(grid, table.rows))


def _record(table: RunTable, outcomes: Sequence[Outcome]) -> None:
    """Write outcomes to the table, curves and models first, so that a row never names a missing file."""
    rows = []
    for outcome in outcomes:
        if outcome.weights:
            _save_model(table.folder, outcome)
        curve = table.save_curve(outcome.row, outcome.loss, outcome.accuracy) if outcome.loss else ""
        rows.append({**outcome.row, "curve": curve})
    table.append(rows)


def _save_model(folder: Path, outcome: Outcome) -> None:
    from safetensors.torch import load

    from interp.models.architecture.checkpoint import save_checkpoint

    row, file = outcome.row, model_file(folder, outcome.row)
    file.parent.mkdir(parents=True, exist_ok=True)
    summary = {name: row[name] for name in ("epochs", "loss", "accuracy", "engine")}
    save_checkpoint(file, ModelSpec.from_dict(row["spec"]), load(outcome.weights), row["seed"], summary)


def _kept(folder: Path, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """The runs whose model is there."""
    return {key: row for key, row in rows.items() if model_file(folder, row).is_file()}


def model_file(folder: Path, row: Row) -> Path:
    """Return the checkpoint of a run, in a folder named by the values of its axes."""
    cell = (f"{name}={value}".replace("/", "-") for name, value in row["axes"].items())
    return folder.joinpath("models", *cell, f"seed-{row['seed']}.safetensors")


def _check_specs(folder: Path, grid: Grid, rows: Mapping[Key, Row]) -> None:
    """Raise InterpError if a run of other settings, or of a task whose file was changed, has the axes of a cell: a mean
    over the table would mix the two."""
    hashes = hashes_of_inputs(grid) if rows else {}
    specs = {json.dumps(dict(cell.axes), sort_keys=True): cell.spec for cell in grid.cells}
    for row in rows.values():
        spec = specs.get(json.dumps(row["axes"], sort_keys=True))
        if spec is not None and spec.id != row["spec_id"]:
            old, new = flat(row["spec"], ""), flat(spec.to_dict(), "")
            field = next((name for name in {**old, **new} if old.get(name) != new.get(name)), "spec")
            raise InterpError(
                f"{folder} has runs of another grid: {field} was {old.get(field)!r}, now {new.get(field)!r}; choose "
                "another folder"
            )
        if spec is not None and not row["error"] and row.get("inputs", hashes[spec.id]) != hashes[spec.id]:
            raise InterpError(
                f"{folder} has runs of task {spec.task.name} with other inputs or labels than it has now; choose "
                "another folder"
            )


def _of_grid(grid: Grid, rows: Mapping[Key, Row]) -> list[Row]:
    """Return the grid's rows with its own axes, because another grid in the same folder may have other axes."""
    keys = [(cell, (cell.spec.id, seed)) for cell in grid.cells for seed in grid.seeds]
    return [{**rows[key], "axes": dict(cell.axes)} for cell, key in keys if key in rows]


def written_by(jobs: Sequence[Job]) -> int:
    """Return the approximate number of bytes that the jobs will write."""
    return sum(
        len(job.seeds) * (ROW_BYTES + EPOCH_BYTES * job.epochs + WEIGHT_BYTES * job.size * job.keep) for job in jobs
    )


def folder_of(grid: Grid, out: str | Path | None) -> Path:
    return as_path(out, "a folder") if out is not None else Path("out") / grid.name


# ---------------------------------------------------------------- estimates


@dataclass(frozen=True)
class Estimate:
    """Numbers of cells, runs and remaining runs of a grid, and the bytes that the remaining runs will write."""

    cells: int
    runs: int
    left: int
    disk: int

    def readable(self) -> dict[str, object]:
        """Return the numbers in readable units."""
        return {
            "cells": self.cells, "runs": self.runs, "runs left": self.left,
            "disk (MB)": round(self.disk / 1e6, 1),
        }  # fmt: skip


def estimate(
    path: str | Path | Grid, out: str | Path | None = None, *, device: str = "cpu", models: bool = False
) -> Estimate:
    """Count what `sweep` would do with the same arguments.

    Reads the folder's table and writes nothing. Raises InterpError for a bad grid.
    """
    grid = path if isinstance(path, Grid) else read_grid(path, device)
    if folder_of(grid, out).is_file():
        raise InterpError(f"{folder_of(grid, out)} is a file; name a folder for the table")
    file = folder_of(grid, out) / FILE
    rows = {key_of(row): row for row in read_rows(file)[0]} if file.exists() else {}
    _check_specs(file.parent, grid, rows)
    jobs = jobs_of(grid, _kept(folder_of(grid, out), rows) if models else rows, device, models)
    left = sum(len(job.seeds) for job in jobs)
    return Estimate(len(grid.cells), grid.n_runs, left, written_by(jobs))
