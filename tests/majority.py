"""A counting task of a user's own, with tokens in an order of its own, for tests of tasks and of evidence."""

from typing import Any, ClassVar

import torch

from interp.tasks import Batch, Task
from interp.tasks.counted import sentences


class Majority(Task):
    """Are there more a than b? Everything is declared, nothing is inherited from Count01."""

    name = "counted-test-majority"
    vocabulary = ("a", "b", ".", "^", "?", "_")
    readout = "?"
    pad = "_"
    n_out = 2
    answer_words = ("no", "yes")
    counted = ("b", "a", ".")
    contrast = ("yes", "no")
    count_ranges: ClassVar[Any] = {"train": ((0, 3),) * 3, "test": ((0, 4), (1, 5), (0, 2))}

    def batch(self, tokens: torch.Tensor) -> Batch:
        more = (tokens == 0).sum(1) > (tokens == 1).sum(1)
        return Batch(tokens, (tokens != 5).sum(1), more.long())

    @property
    def example(self) -> Batch:
        return self.batch(torch.tensor([self.parse("^a.b?")]))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        low, high = (torch.tensor(ends) for ends in zip(*self.count_ranges[split]))
        generator = torch.Generator().manual_seed(seed)
        counts = low + (torch.rand(n, 3, generator=generator) * (high - low + 1)).long()
        return sentences(self, counts, seed)
