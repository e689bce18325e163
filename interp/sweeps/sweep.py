"""Run a sweep: train every run of a grid once, with several workers, into one durable table.

The workers are processes of this machine, or those of a Dask cluster, which needs the optional extra `dask`. Dask
itself repeats the jobs of a lost worker; its scheduler only receives jobs, and the table stays in this process.
"""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interp.errors import InterpError, as_path, check_size, short
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


Result = TypeVar("Result")


NEEDS_DASK = "sweeps on a Dask cluster need Dask: pip install 'dask[distributed]'"


@contextmanager
def _without_shouting() -> Iterator[None]:
    """Silence asyncio and Tornado, which would print tracebacks of unfinished tasks if the cluster is lost."""
    loggers = [logging.getLogger(name) for name in ("asyncio", "tornado.application")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        gc.collect()
        for logger, level in zip(loggers, before):
            logger.setLevel(level)


class DaskPool(Generic[Result]):
    """Runs `work` on jobs on the cluster at `address`, such as tcp://host:8786, with the interface of LocalPool.

    Raises InterpError if Dask is not installed, if nothing answers at the address within `timeout` seconds, if the
    cluster has no workers or workers with another version of interp, or if it is lost.
    """

    def __init__(self, work: Callable[[Job], Result], address: str, timeout: float = 10.0) -> None:
        self.work, self.address, self.timeout = work, address, timeout

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Died]]:
        try:
            from distributed import Client, as_completed
        except ModuleNotFoundError:
            raise InterpError(NEEDS_DASK) from None
        with _without_shouting(), self._connect(Client) as client:
            priorities = range(len(jobs), 0, -1)  # longest first
            futures = {
                client.submit(self.work, job, key=f"{job.spec_id}-{job.seeds[0]}", priority=priority, pure=False): job
                for job, priority in zip(jobs, priorities)
            }
            for future in as_completed(list(futures), loop=client.loop):
                job = futures.pop(future)
                if future.status == "finished":
                    yield job, future.result()
                elif future.status == "error":
                    error = future.exception()
                    yield job, Died(f"{type(error).__name__}: {error}".splitlines()[0])
                else:
                    raise InterpError(f"the Dask cluster at {self.address} is gone; the sweep can be resumed")
                future.release()  # otherwise the cluster would keep the result

    def look(self) -> None:
        """Raise InterpError if Dask is not installed or nothing answers at the address."""
        try:
            from distributed.comm import get_address_host_port
        except ModuleNotFoundError:
            raise InterpError(NEEDS_DASK) from None
        try:
            # Use a plain connection, because a client that fails to connect leaves threads behind.
            socket.create_connection(get_address_host_port(self.address), self.timeout).close()
        except (OSError, ValueError) as error:  # a time-out is an OSError
            raise self._silent(error) from None

    def _silent(self, error: Exception) -> InterpError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return InterpError(
            f"no Dask scheduler answers at {short(self.address)} within {self.timeout:g} s ({short(reason)}); "
            "start one with: dask scheduler"
        )

    def _connect(self, client_class: Any) -> Any:
        self.look()
        try:
            client = client_class(self.address, timeout=self.timeout, set_as_default=False)
        except (OSError, ValueError) as error:  # a time-out is an OSError
            raise self._silent(error) from None
        try:
            client.wait_for_workers(1, timeout=self.timeout)
            versions = set(client.run(_version).values())
            if versions != {_version()}:
                raise InterpError(
                    f"the workers of {self.address} have interp {', '.join(sorted(versions))}, here it is {_version()}"
                )
        except TimeoutError:
            client.close()
            raise InterpError(
                f"the Dask cluster at {self.address} has no workers; start some with: dask worker {self.address}"
            ) from None
        except BaseException:
            client.close()
            raise
        return client


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("interp")
    except PackageNotFoundError:
        return "(none)"
