"""Workers of a Dask cluster, with the same jobs and outcomes as local workers. Needs the optional extra `dask`.

Dask itself repeats the jobs of a lost worker. The scheduler only receives jobs; the table stays in this process.
"""

import gc
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from interp.errors import InterpError, short
from interp.sweeps.jobs import Job
from interp.sweeps.pool import Died

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
