"""Local workers: each job once, errors as results, no workers left behind."""

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from sweep_work import a_job, die, fail_at_a, name_and_process

from interp.errors import InterpError
from interp.training.sweeps.pool import run_here

TESTS = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_every_job_is_done_once_by_as_many_processes_as_asked() -> None:
    jobs = [a_job(f"job-{i}") for i in range(40)]
    results = list(run_here(name_and_process, jobs, 2))
    assert sorted(job.spec_id for job, _ in results) == sorted(job.spec_id for job in jobs)
    assert all(result[0] == job.spec_id for job, result in results)
    assert {process for _, (_, process) in results} - {os.getpid()}
    assert list(run_here(name_and_process, [], 2)) == []


def test_what_a_job_raises_is_its_result() -> None:
    results = {job.spec_id: repr(result) for job, result in run_here(fail_at_a, [a_job("a"), a_job("b")], 1)}
    assert results == {"a": "MemoryError('no more memory')", "b": "'b'"}


def test_a_killed_worker_ends_the_sweep_which_can_go_on() -> None:
    with pytest.raises(InterpError, match=r"ended before its job.* fewer workers and resume \(--resume\) goes on"):
        list(run_here(die, [a_job("a"), a_job("b")], 1))


def test_workers_that_cannot_start_end_the_sweep(capfd: pytest.CaptureFixture) -> None:
    module = types.ModuleType("a_module_that_workers_do_not_find")
    sys.modules[module.__name__] = module
    exec("def work(job): return 1", vars(module))
    try:
        with pytest.raises(InterpError, match=r"a worker of the sweep ended before its job.*__name__"):
            list(run_here(module.work, [a_job("a")], 1))
    finally:
        del sys.modules[module.__name__]
    assert "a_module_that_workers_do_not_find" in capfd.readouterr().err


def test_workers_end_with_a_killed_parent_in_the_middle_of_a_job(tmp_path: Path) -> None:
    marker = tmp_path / "process"
    code = (
        "from pathlib import Path; from sweep_work import *; from interp.training.sweeps.pool import run_here\n"
        "if __name__ == '__main__':\n"
        f"    list(run_here(write_process_and_sleep, [a_job('a', Path({str(marker)!r}))], 1))\n"
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
