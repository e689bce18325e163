"""Run a sweep: train every run of a grid once, with several workers, into one durable table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from interp.budget import check_size
from interp.errors import InterpError, as_path
from interp.sweeps.cluster import DaskPool
from interp.sweeps.grid import Grid, read_grid
from interp.sweeps.jobs import Job, Outcome, failed, jobs_of, run_job
from interp.sweeps.pool import Died, LocalPool
from interp.sweeps.progress import SweepProgress
from interp.sweeps.table import Key, Row, RunTable, to_frame

if TYPE_CHECKING:
    import pandas as pd

ROW_BYTES, EPOCH_BYTES = 2500, 32
"""Approximate bytes of a run's row in the table, and of an epoch in its curve."""


def sweep(
    path: str | Path | Grid,
    out: str | Path | None = None,
    workers: int = 2,
    resume: bool = True,
    *,
    dask: str | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> pd.DataFrame:
    """Train every run of a grid and return the table of runs; runs that the folder's table already has are skipped.

    path: a grid in TOML (see interp.sweeps.grid), or a Grid. out: the folder of the table, by default out/<grid name>.
    workers: number of processes on this machine, each with one thread. dask: the address of a Dask scheduler to use
    instead. resume: continue an interrupted sweep; False refuses a folder whose table has runs.

    Returns one row per run of the grid (columns: interp.sweeps.table.RESULT_COLUMNS, after those of its axes), sorted
    by cell and seed. If a run failed, its row has the error, and the next sweep in the folder tries it again. You may
    kill the sweep at any moment: a row is appended when its run ends. Raises InterpError for a bad grid, with all its
    problems, and if the table cannot be written.

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
    pool: LocalPool[list[Outcome]] | DaskPool[list[Outcome]]
    pool = DaskPool(run_job, dask) if dask is not None else LocalPool(run_job, workers)
    if isinstance(pool, DaskPool):
        pool.look()  # before a folder is made
    with RunTable(folder) as table:
        if table.rows and not resume:
            raise InterpError(
                f"{folder} has a table of {len(table.rows)} runs; continue it with resume (--resume), or choose "
                "another folder"
            )
        jobs = jobs_of(grid, table.rows, device)
        table.need_room(written_by(jobs))
        done = grid.n_runs - sum(len(job.seeds) for job in jobs)
        with SweepProgress(jobs, done, progress) as shown:
            for job, result in pool.run(jobs):
                outcomes = failed(job, result.why) if isinstance(result, Died) else result
                _record(table, outcomes)
                shown.update(job, sum(bool(outcome.row["error"]) for outcome in outcomes))
        return to_frame(_of_grid(grid, table.rows))


def _record(table: RunTable, outcomes: Sequence[Outcome]) -> None:
    """Write outcomes to the table, curves first, so that a row never names a missing file."""
    rows = []
    for outcome in outcomes:
        curve = table.save_curve(outcome.row, outcome.loss, outcome.accuracy) if outcome.loss else ""
        rows.append({**outcome.row, "curve": curve})
    table.append(rows)


def _of_grid(grid: Grid, rows: Mapping[Key, Row]) -> list[Row]:
    """Return the grid's rows with its own axes, because another grid in the same folder may have other axes."""
    keys = [(cell, (cell.spec.id, seed)) for cell in grid.cells for seed in grid.seeds]
    return [{**rows[key], "axes": dict(cell.axes)} for cell, key in keys if key in rows]


def written_by(jobs: Sequence[Job]) -> int:
    """Return the approximate number of bytes that the jobs will write."""
    return sum(len(job.seeds) * (ROW_BYTES + EPOCH_BYTES * job.epochs) for job in jobs)


def folder_of(grid: Grid, out: str | Path | None) -> Path:
    return as_path(out, "a folder") if out is not None else Path("out") / grid.name
