"""How many threads torch takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

SMALL = 1_000_000
"""Parameters up to which a model's operations are so small that sharing one costs more than it saves."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small operations: on busy cores torch's threads would wait for each other far longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(model: torch.nn.Module) -> AbstractContextManager[None]:
    """One thread for a small model, as many as torch takes by itself for a larger one."""
    small = sum(parameter.numel() for parameter in model.parameters()) <= SMALL
    return one_thread() if small else nullcontext()
