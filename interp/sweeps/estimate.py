"""Estimate the time, memory and disk space of a sweep by training a few of its jobs for a few epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interp.errors import InterpError, check_size
from interp.sweeps.grid import Grid, read_grid
from interp.sweeps.jobs import Cost, Job, jobs_of, probe_job
from interp.sweeps.pool import Died, LocalPool
from interp.sweeps.progress import duration
from interp.sweeps.sweep import folder_of, written_by
from interp.sweeps.table import FILE, key_of, read_rows

N_PROBES = 12


@dataclass(frozen=True)
class Estimate:
    """Numbers of cells, runs and remaining runs of a grid, and the resources for the remaining runs.

    seconds: wall time with `workers` free cores. memory: of all workers, in bytes. disk: bytes that will be written.
    """

    cells: int
    runs: int
    left: int
    workers: int
    seconds: float
    memory: int
    disk: int

    def readable(self) -> dict[str, object]:
        """Return the numbers in readable units, such as hours, minutes and megabytes."""
        return {
            "cells": self.cells, "runs": self.runs, "runs left": self.left, "workers": self.workers,
            "time left": duration(self.seconds), "memory (MB)": round(self.memory / 1e6),
            "disk (MB)": round(self.disk / 1e6, 1),
        }  # fmt: skip


def estimate(
    path: str | Path | Grid, out: str | Path | None = None, workers: int = 2, *, device: str = "cpu"
) -> Estimate:
    """Estimate the resources of `sweep` with the same arguments, by timing short and long jobs in one worker.

    Reads the folder's table and writes nothing. Raises InterpError for a bad grid, and if a job cannot be trained.
    """
    check_size("workers", workers)
    grid = path if isinstance(path, Grid) else read_grid(path, device)
    if folder_of(grid, out).is_file():
        raise InterpError(f"{folder_of(grid, out)} is a file; name a folder for the table")
    file = folder_of(grid, out) / FILE
    rows = {key_of(row): row for row in read_rows(file)[0]} if file.exists() else {}
    jobs = jobs_of(grid, rows, device)
    left = sum(len(job.seeds) for job in jobs)
    works, times, memory = [], [], 0
    for job, probe in LocalPool(_probe, 1).run(_spread(jobs)):
        if isinstance(probe, Died | str):
            raise InterpError(f"{job.spec_id} cannot be trained: {probe.why if isinstance(probe, Died) else probe}")
        works.append(job.work)
        times.append(probe.seconds * job.epochs)
        memory = max(memory, probe.memory)
    seconds = _time_of([job.work for job in jobs], works, times) / workers if jobs else 0.0
    return Estimate(len(grid.cells), grid.n_runs, left, workers, seconds, memory * workers, written_by(jobs))


def _spread(jobs: Sequence[Job]) -> list[Job]:
    """Select jobs from the longest to the shortest, evenly spaced in their order."""
    n = min(N_PROBES, len(jobs))
    return [jobs[round(i * (len(jobs) - 1) / max(1, n - 1))] for i in range(n)]


def _time_of(jobs: Sequence[float], works: Sequence[float], times: Sequence[float]) -> float:
    """Predict the time of all jobs as sums of a + b * work, where a, b >= 0 minimize the relative errors on probes."""
    import numpy as np
    from scipy.optimize import nnls

    work, seconds = np.array(works), np.array(times)
    (a, b), _ = nnls(np.stack([1 / seconds, work / seconds], 1), np.ones(len(seconds)))
    return float((a + b * np.array(jobs)).sum())


def _probe(job: Job) -> Cost | str:
    try:
        return probe_job(job)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
