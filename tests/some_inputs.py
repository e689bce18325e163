"""Populations of n inputs for tests of sentences: all there are, or a sample."""

import torch

from interp.tasks import Batch
from interp.tasks.populations import Population


def _rows(n: int) -> Batch:
    return Batch(torch.zeros(n, 1, dtype=torch.long), torch.ones(n, dtype=torch.long), torch.zeros(n, dtype=torch.long))


def every(n: int) -> Population:
    """All n inputs of a task."""
    return Population("exact", _rows(n), n)


def some(n: int) -> Population:
    """A sample of n inputs."""
    return Population("sample", _rows(n), None, "test", 0)
