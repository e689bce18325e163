"""The base class of tasks whose answer at each position is the set of symbols that may follow."""

from abc import abstractmethod
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.base import Task
from interp.tasks.batch import Batch
from interp.tasks.sets import pack_sets

SAMPLED = 200
"""Number of samples per split that show whether a task asks about prefixes of members only."""


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

    def asked(self, batch: Batch) -> Bool[Tensor, "rows length"]:
        """Return the positions after prefixes of members; all labelled positions if samples hold other prefixes."""
        labelled = super().asked(batch)
        return labelled & self._after_members(batch.tokens) if self._samples_members else labelled

    def _after_members(self, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
        """Return whether each symbol was among those that could follow, and something can follow the first."""
        allowed = self.allowed(tokens).bool()
        outputs = torch.tensor([self.answer_words.index(w) if w in self.answer_words else -1 for w in self.vocabulary])
        next_one = outputs[tokens[:, 1:]]
        went_on = allowed[:, :-1].gather(2, next_one.clamp(min=0)[..., None])[..., 0] | (next_one < 0)
        return torch.cat([allowed[:, :1].any(-1), went_on], 1).cummin(1).values

    @cached_property
    def _samples_members(self) -> bool:
        """Whether the prefixes of all samples are prefixes of members."""
        for split in self.splits:
            batch = self.sample(SAMPLED, split, seed=0)
            if bool((super().asked(batch) & ~self._after_members(batch.tokens)).any()):
                return False
        return True
