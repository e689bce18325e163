"""Sweeps on a real local Dask cluster of processes, one of which is killed on the way; addresses that do not answer."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sweep_work import a_job, fail_at_a, name_and_process, small_grid

import interp
from interp.training.sweeps import sweep as sweep_file
from interp.training.sweeps.grid import make_grid
from interp.training.sweeps.pool import run_on_dask
from interp.training.sweeps.table import FILE

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as running:
        yield running


@pytest.mark.slow
def test_a_worker_killed_on_the_way_changes_nothing(cluster: Any, tmp_path: Path, monkeypatch) -> None:
    grid = make_grid(small_grid(epochs=20))
    calm = interp.sweep(grid, tmp_path / "calm", workers=1, progress=False)
    victim, *_ = _processes(cluster)
    killed = []

    def kill_one(*arguments: Any) -> Iterator[Any]:
        for job, result in run_on_dask(*arguments):
            if not killed:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)
            yield job, result

    monkeypatch.setattr(sweep_file, "run_on_dask", kill_one)
    table = interp.sweep(grid, tmp_path / "dask", dask=cluster.scheduler_address, progress=False)
    assert killed
    assert victim not in _processes(cluster)
    same = ["spec_id", "seed", "accuracy", "best_accuracy", "loss", "engine", "error", "curve"]
    pd.testing.assert_frame_equal(table[same], calm[same], check_exact=True)
    assert len((tmp_path / "dask" / FILE).read_text().splitlines()) == grid.n_runs


def _processes(cluster: Any) -> list[int]:
    with distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        return list(client.run(os.getpid).values())


@pytest.mark.slow
def test_a_job_that_raises_costs_no_other_job_anything(cluster: Any) -> None:
    jobs = [a_job("a"), a_job("b")]
    results = {job.spec_id: repr(result) for job, result in run_on_dask(fail_at_a, jobs, cluster.scheduler_address)}
    assert results == {"a": "MemoryError('no more memory')", "b": "'b'"}


def test_an_address_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound but not listening: nobody answers
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(interp.InterpError, match=rf"no Dask scheduler answers at {address} within 0.2 s"):
            list(run_on_dask(name_and_process, [a_job("a")], address, timeout=0.2))
    for nonsense in ("nonsense", "tcp://", "abc://x:1"):
        with pytest.raises(interp.InterpError, match="no Dask scheduler answers at"):
            list(run_on_dask(name_and_process, [a_job("a")], nonsense, timeout=1.0))


@pytest.mark.slow
def test_a_cluster_without_workers_is_one_sentence() -> None:
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty:
        with pytest.raises(interp.InterpError, match=r"has no workers; start some with: dask worker tcp://"):
            list(run_on_dask(name_and_process, [a_job("a")], empty.scheduler_address, timeout=1.0))
