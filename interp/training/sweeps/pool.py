"""Workers: processes of this machine, or those of a Dask cluster, which needs the optional extra `dask`.

Each process imports once and then runs one job at a time on one thread. Both functions yield (job, result) in the order
of completion, where a result is what `work` returned, or the exception that it raised or that ended it.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from interp.errors import InterpError, short
from interp.training.sweeps.jobs import Job, versions

Result = TypeVar("Result")


def run_here(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Any]]:
    """Run `work`, a module-level function, on jobs in processes of this machine.

    The processes end with the iterator and with this process, in the middle of a job too. Raises InterpError if one of
    them is killed, or cannot import `work`.
    """
    if not jobs:
        return
    context = get_context("spawn")
    heard, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(jobs)), context, _begin, (heard,))
    try:
        futures = {pool.submit(work, job): job for job in jobs}
        for future in as_completed(futures):
            if isinstance(error := future.exception(), BrokenProcessPool):
                raise InterpError(
                    "a worker of the sweep ended before its job (what it said is above): if memory ran out, the same "
                    "command with fewer workers and resume (--resume) goes on; a script that calls interp.sweep must "
                    'do so under: if __name__ == "__main__"'
                )
            yield futures[future], error or future.result()
    finally:
        alive.close()
        pool.shutdown(cancel_futures=True)
        heard.close()


def _begin(heard: Connection) -> None:
    """Prepare a worker: it leaves interruptions to the sweep, and ends when the other end of `heard` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(heard,), daemon=True).start()


def _end_with(heard: Connection) -> None:
    with suppress(EOFError, OSError):
        heard.recv()
    os._exit(1)


def run_on_dask(
    work: Callable[[Job], Result], jobs: Sequence[Job], address: str, timeout: float = 10.0
) -> Iterator[tuple[Job, Any]]:
    """Run `work` on the cluster at `address`, such as tcp://host:8786.

    Dask itself repeats the jobs of a lost worker; its scheduler only receives jobs. Raises InterpError if Dask is not
    installed, if nothing answers at the address within `timeout` seconds, if the cluster has no workers or workers with
    another version of interp, or if it is lost.
    """
    distributed = _dask()
    with connected(address, timeout) as client:
        priorities = range(len(jobs), 0, -1)  # longest first
        futures = {
            client.submit(work, job, key=f"{job.spec_id}-{job.seeds[0]}", priority=priority, pure=False): job
            for job, priority in zip(jobs, priorities)
        }
        for future in distributed.as_completed(list(futures), loop=client.loop):
            job = futures.pop(future)
            if future.status not in ("finished", "error"):
                raise InterpError(f"the Dask cluster at {address} is gone; the sweep can be resumed")
            yield job, future.exception() or future.result()
            future.release()  # otherwise the cluster would keep the result


def connected(address: str, timeout: float = 10.0) -> Any:
    """Return a client of the cluster at an address. Raises InterpError if it cannot run jobs."""
    try:
        client = _dask().Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:  # a time-out is an OSError
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InterpError(
            f"no Dask scheduler answers at {short(address)} within {timeout:g} s ({short(why)}); "
            "start one with: dask scheduler"
        ) from None
    try:
        client.wait_for_workers(1, timeout=timeout)
        theirs = {*client.run(_version).values()}
        if theirs != {_version()}:
            raise InterpError(
                f"the workers of {address} have interp {', '.join(sorted(theirs))}, here it is {_version()}"
            )
    except TimeoutError:
        client.close()
        raise InterpError(
            f"the Dask cluster at {address} has no workers; start some with: dask worker {address}"
        ) from None
    except BaseException:
        client.close()
        raise
    return client


def _dask() -> Any:
    try:
        import distributed
    except ModuleNotFoundError:
        raise InterpError("sweeps on a Dask cluster need Dask: pip install 'dask[distributed]'") from None
    return distributed


def _version() -> str:
    return versions().get("interp", "(none)")
