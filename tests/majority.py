"""Tasks of a user's own, which ask for the more frequent letter: in sentences, and in words that are all listed."""

from collections.abc import Iterator
from itertools import product
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


class MoreB(Task):
    """Are there more b than a among five?"""

    name = "more-b"
    vocabulary: tuple[str, ...] = ("a", "b", "?")
    readout = "last"
    n_out: Any = 2
    n_inputs: Any = 32
    words = torch.tensor([[*word, 2] for word in product((0, 1), repeat=5)])

    @staticmethod
    def label(tokens: torch.Tensor) -> torch.Tensor:
        return ((tokens == 1).sum(1) > (tokens == 0).sum(1)).long()

    def batch(self, tokens: torch.Tensor) -> Batch:
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), type(self).label(tokens))

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        for part in self.words.split(chunk):
            yield self.batch(part)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        drawn = torch.randint(len(self.words), (n,), generator=torch.Generator().manual_seed(seed))
        return self.batch(self.words[drawn])
