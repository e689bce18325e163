"""Local workers: each job once, deaths that cost one job, no workers left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from sweep_work import a_job, die_if_told, name_and_process

from interp.errors import InterpError
from interp.training.sweeps.pool import Died, LocalPool

TESTS = Path(__file__).resolve().parent.parent.parent


def test_every_job_is_done_once_by_as_many_processes_as_asked() -> None:
    jobs = [a_job(f"job-{i}") for i in range(40)]
    results = list(LocalPool(name_and_process, 2).run(jobs))
    assert sorted(job.spec_id for job, _ in results) == sorted(job.spec_id for job in jobs)
    assert all(result[0] == job.spec_id for job, result in results)
    assert {process for _, (_, process) in results} - {os.getpid()}
    assert list(LocalPool(name_and_process, 2).run([])) == []


def test_a_killed_worker_costs_only_its_own_job_a_retry(tmp_path: Path) -> None:
    names = ["a", "once", "b", "always", "c"]
    jobs = [a_job(name, tmp_path / name) for name in names]
    results = {job.spec_id: result for job, result in LocalPool(die_if_told, 1).run(jobs)}
    assert {name: results[name] for name in ("a", "once", "b", "c")} == {n: n for n in ("a", "once", "b", "c")}
    assert results["always"] == Died("its worker was killed by SIGKILL (out of memory?)")


def test_workers_that_cannot_start_end_the_sweep(capfd: pytest.CaptureFixture) -> None:
    module = types.ModuleType("a_module_that_workers_do_not_find")
    sys.modules[module.__name__] = module
    exec("def work(job): return 1", vars(module))
    try:
        with pytest.raises(InterpError, match=r"its worker ended with code 1 while it started.*__name__"):
            list(LocalPool(module.work, 1).run([a_job("a")]))
    finally:
        del sys.modules[module.__name__]
    assert "a_module_that_workers_do_not_find" in capfd.readouterr().err


def test_a_worker_killed_while_starting_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are; a machine that kills every one of them will not have the sweep."""
    start, killed = LocalPool._start, []

    def killing(pool: LocalPool) -> object:
        worker = start(pool)
        if len(killed) < most:
            killed.append(worker.process.pid)
            worker.process.kill()
        return worker

    monkeypatch.setattr(LocalPool, "_start", killing)
    most = 2
    assert [result[0] for _, result in LocalPool(name_and_process, 1).run([a_job("a")])] == ["a"]
    assert len(killed) == 2
    killed.clear()
    most = 100
    with pytest.raises(InterpError, match="a job could not begin: its worker was killed by SIGKILL"):
        list(LocalPool(name_and_process, 1).run([a_job("a")]))
    assert len(killed) == 4


def test_workers_end_with_a_killed_parent_in_the_middle_of_a_job(tmp_path: Path) -> None:
    marker = tmp_path / "process"
    code = (
        "from pathlib import Path; from sweep_work import *; from interp.training.sweeps.pool import LocalPool\n"
        "if __name__ == '__main__':\n"
        f"    list(LocalPool(write_process_and_sleep, 1).run([a_job('a', Path({str(marker)!r}))]))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    parent = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    )
    try:
        wait_until(marker.exists)
        worker = int(marker.read_text())
        assert alive(worker)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not alive(worker))
    finally:
        parent.kill()
        parent.wait()


def alive(process: int) -> bool:
    """Running, and no zombie that nobody has collected."""
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_until(happened: object) -> None:
    """A minute is long enough for anything here on a busy machine; a failure would last for ever."""
    end = time.monotonic() + 60
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
