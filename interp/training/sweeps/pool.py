"""Workers: processes of this machine, or those of a Dask cluster, which needs the optional extra `dask`.

Each process imports once and then runs one job at a time on one thread. It has its own pipe, which shows which job it
was running when it died. If the system kills it (out of memory), only one job is lost. Workers always end with the
sweep. Dask itself repeats the jobs of a lost worker; its scheduler only receives jobs.
"""

import gc
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from interp.errors import InterpError, short
from interp.training.sweeps.jobs import Job, versions

DEATHS_ALLOWED = 1
"""Number of times a job is repeated after its worker died; another process may have used up the memory."""

STARTS_ALLOWED = 3
"""Number of workers of a sweep that may be killed while starting; one that exits by itself is not restarted."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Died:
    """A job whose workers died."""

    why: str


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    job: Job | None = None


class LocalPool(Generic[Result]):
    """Runs `work` on jobs in `workers` processes: `for job, result in pool.run(jobs)`, in the order of completion.

    work must be a module-level function. It must not raise.
    """

    def __init__(self, work: Callable[[Job], Result], workers: int) -> None:
        self.work, self.n = work, workers

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Died]]:
        waiting, deaths, unborn = deque(jobs), Counter[int](), 0
        workers = [self._start() for _ in range(min(self.n, len(jobs)))]
        left = len(jobs)
        try:
            while left:
                for worker in workers:
                    if worker.ready and worker.job is None and waiting:
                        worker.job = waiting.popleft()
                        with suppress(OSError):  # the worker died while idle, which its pipe shows below
                            worker.pipe.send(worker.job)
                heard = wait([worker.pipe for worker in workers])
                for worker in [w for w in workers if w.pipe in heard]:
                    try:
                        result = worker.pipe.recv()
                    except (EOFError, OSError):
                        job = worker.job
                        why = self._bury(worker)
                        unborn += not worker.ready
                        if unborn > STARTS_ALLOWED or (not worker.ready and "killed" not in why):
                            raise InterpError(
                                f"a job could not begin: {why} while it started (its message is above); a script that "
                                'calls interp.sweep must do so under: if __name__ == "__main__"'
                            ) from None
                        workers[workers.index(worker)] = self._start()
                        if job is None:
                            continue
                        deaths[id(job)] += 1
                        if deaths[id(job)] <= DEATHS_ALLOWED:
                            waiting.append(job)
                            continue
                        left -= 1
                        yield job, Died(why)
                    else:
                        job, worker.job, worker.ready = worker.job, None, True
                        if job is not None:
                            left -= 1
                            yield job, result
        finally:
            for worker in workers:  # all their results have been received, or the sweep ends early
                worker.process.kill()
                worker.process.join()
                worker.pipe.close()

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.work), daemon=True)
        process.start()
        theirs.close()  # otherwise a dead worker's pipe would never close
        return _Worker(process, ours)

    def _bury(self, worker: _Worker) -> str:
        """Remove a dead worker; return the reason for its death."""
        worker.process.join()
        worker.pipe.close()
        code = worker.process.exitcode or 0
        if code >= 0:
            return f"its worker ended with code {code}"
        name = signal.Signals(-code).name
        return f"its worker was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _serve(pipe: Connection, work: Callable[[Job], Any]) -> None:
    """A worker's main loop: report that `work` is imported, then run one job at a time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep decides what an interruption means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError):  # the sweep is over
        pipe.send("ready")
        while True:
            pipe.send(work(pipe.recv()))


def _end_with_parent() -> None:
    """End this worker when the sweep's process is killed, even during a long job."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# ---------------------------------------------------------------- a cluster


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
        self.look()
        from distributed import Client, as_completed

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
            raise InterpError("sweeps on a Dask cluster need Dask: pip install 'dask[distributed]'") from None
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
        try:
            client = client_class(self.address, timeout=self.timeout, set_as_default=False)
        except (OSError, ValueError) as error:  # a time-out is an OSError
            raise self._silent(error) from None
        try:
            client.wait_for_workers(1, timeout=self.timeout)
            found = set(client.run(_version).values())
            if found != {_version()}:
                raise InterpError(
                    f"the workers of {self.address} have interp {', '.join(sorted(found))}, here it is {_version()}"
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
    return versions().get("interp", "(none)")
