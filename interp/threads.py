"""How many threads torch and BLAS take, and how many cores there are for several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from threadpoolctl import threadpool_limits

SMALL = 1_000_000
"""Parameters up to which a model's operations are so small that sharing one costs more than it saves."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small operations, in torch and in the BLAS under numpy and scikit-learn.

    On busy cores the threads of one small product wait for each other far longer than they work: a probe of 2,000
    vectors took 21 CPU seconds with two threads beside other work, and 1.3 with one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def threads_for(model: torch.nn.Module) -> AbstractContextManager[None]:
    """One thread for a small model, as many as torch takes by itself for a larger one."""
    small = sum(parameter.numel() for parameter in model.parameters()) <= SMALL
    return one_thread() if small else nullcontext()


def cores() -> int:
    """How many cores this process may use; all of the machine's where the system does not say (macOS, Windows)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
