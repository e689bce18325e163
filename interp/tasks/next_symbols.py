"""The base class of tasks whose answer at each position is the set of symbols that may follow."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.base import Task
from interp.tasks.batch import Batch
from interp.tasks.sets import pack_sets


class NextSymbols(Task):
    """The answer at each position is the set of outputs that may follow, which may be empty.

    A subclass sets `vocabulary` (and `symbols` if the outputs differ from it) and defines `sample` and `allowed`. A
    model is right at a position if exactly the outputs that may follow are above 0.

    Example:

        class EvenOnes(NextSymbols):
            name, vocabulary, symbols = "even_ones", ("0", "1"), ("0", "1", "end")

            def sample(self, n, split="test", seed=0):
                draw = torch.Generator().manual_seed(seed)
                return self.batch(torch.randint(2, (n, 10), generator=draw))

            def allowed(self, tokens):
                even = tokens.cumsum(1) % 2 == 0
                return torch.stack([torch.ones_like(even), torch.ones_like(even), even], dim=-1)
    """

    decision = "set"
    symbols: tuple[str, ...] = ()

    @abstractmethod
    def allowed(self, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length n_out"]:
        """Return which outputs may follow each prefix; values at padding are ignored."""

    @property
    def answer_words(self) -> tuple[str, ...]:
        return self.symbols or self.vocabulary

    @property
    def n_out(self) -> int:
        return len(self.answer_words)

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows with the set that may follow each prefix, as an integer; -1 at padding."""
        length = tokens.shape[1]
        lengths = torch.full((len(tokens),), length) if self.pad_id is None else (tokens != self.pad_id).sum(1)
        labels = pack_sets(self.allowed(tokens).bool())
        return Batch(tokens, lengths, labels.masked_fill(torch.arange(length) >= lengths[:, None], -1))
