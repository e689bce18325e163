"""Induction: a random string of different tokens, repeated; predict the next token (Olsson et al. 2022).

    [BOS] 7 2 9 7 2 9 7          from the second 7 on, the answer is the token that followed last time: 2 9 7 2

The length of the string varies from row to row, so the answer is not at a fixed distance, and a model must search for
the token.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import islice, permutations
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.families.algorithmic.tasks.numbers import NumberTask
from interp.models.spec import Scalar
from interp.tasks.batch import Batch
from interp.tasks.pairs import Pairs
from interp.tasks.registry import register_task


@register_task
class Induction(NumberTask):
    """The token after the current token's last earlier occurrence; -1 at [BOS] and at first occurrences.

    v: number of tokens "0" to "v-1", besides [BOS]. length: number of tokens in a row after [BOS]. The number of
    different tokens in the repeated string is uniform on shortest..longest.
    """

    name = "induction"
    readout = "all"
    defaults: ClassVar[Mapping[str, Scalar]] = {"v": 32, "length": 32, "shortest": 6, "longest": 24}

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.v, self.length, self.shortest, self.longest = (
            check_size(name, self.parameters[name]) for name in ("v", "length", "shortest", "longest")
        )
        if not self.shortest <= self.longest < self.length or self.longest > self.v:
            raise InterpError(
                f"shortest = {self.shortest}, longest = {self.longest}: shortest must not exceed longest, which must "
                f"be below length = {self.length} and at most v = {self.v}"
            )
        self.vocabulary = (*map(str, range(self.v)), "[BOS]")
        earlier = ("and", ("<", ("index",), ("place",)), ("=", ("item",), ("own",)))
        followed = ("if", earlier, ("at", ("tokens",), ("+", ("index",), 1)), ("so_far",))
        self.rule = ("if", ("=", ("own",), self.v), -1, ("fold", ("tokens",), -1, followed))

    @property
    def answer_words(self) -> tuple[str, ...]:
        """One word per output: all tokens except [BOS]."""
        return self.vocabulary[: self.v]

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n rows; both splits have the same distribution."""
        generator = self.generator(split, seed)
        strings = torch.rand(n, self.v, generator=generator).argsort(1)
        periods = torch.randint(self.shortest, self.longest + 1, (n, 1), generator=generator)
        rows = strings.gather(1, torch.arange(self.length) % periods)
        return self.batch(torch.nn.functional.pad(rows, (1, 0), value=self.v))

    @property
    def n_inputs(self) -> int:
        """Number of strings of different tokens with lengths from shortest to longest; 7e30 with the defaults."""
        return sum(math.perm(self.v, period) for period in range(self.shortest, self.longest + 1))

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield every repeated string: short ones first, in lexicographic order within a length."""
        for period in range(self.shortest, self.longest + 1):
            strings = permutations(range(self.v), period)
            while rows := list(islice(strings, chunk)):
                repeated = torch.tensor(rows)[:, torch.arange(self.length) % period]
                yield self.batch(torch.nn.functional.pad(repeated, (1, 0), value=self.v))

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of any length that begin with [BOS]; there is an answer wherever the token has occurred before."""
        self.check_input(tokens)
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device), self._label(tokens))

    def _label(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        last = self.last_seen(tokens)
        followed = tokens.gather(1, (last + 1).clamp(min=0))
        return torch.where(last >= 0, followed, -1)

    def last_seen(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Return the position of each token's last earlier occurrence; -1 if there is none, and at [BOS]."""
        place = torch.arange(tokens.shape[1], device=tokens.device)
        same = (tokens[:, :, None] == tokens[:, None, :]) & (place[None, :] < place[:, None])
        last = torch.where(same, place, -1).amax(-1)
        return torch.where(tokens == self.v, -1, last)

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError unless every row is [BOS] followed by other tokens."""
        if tokens.shape[1] < 2:
            raise InterpError(
                f"rows of {tokens.shape[1]} tokens are not inputs of task {self.name}: give [BOS] and more tokens"
            )
        good = (tokens[:, 0] == self.v) & ((tokens[:, 1:] >= 0) & (tokens[:, 1:] < self.v)).all(1)
        self.check_rows(good, tokens, f"[BOS] and numbers below {self.v}")

    def answers(
        self, classes: Int[Tensor, "rows length"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows length"]:
        """Return the next tokens; -1 where the next token is not determined."""
        return classes.masked_fill(self.last_seen(tokens) < 0, -1)

    def corrupt(self, batch: Batch, seed: int = 0) -> Pairs:
        """Swap two random tokens in the first copy of the string.

        This separates how a model finds a position (by the previous token) from what it copies from that position.
        """
        generator = torch.Generator().manual_seed(seed)
        first = (self.last_seen(batch.tokens) < 0) & (batch.tokens != self.v)
        order = torch.rand(first.shape, generator=generator).masked_fill(~first.cpu(), 2.0).argsort(1)
        at = order[:, :2].to(batch.tokens.device)
        changed = batch.tokens.scatter(1, at, batch.tokens.gather(1, at.flip(1)))
        corrupted = self.batch(changed)
        both = (batch.labels >= 0) & (corrupted.labels >= 0)
        keep = (first.sum(1) >= 2) & (both & (batch.labels != corrupted.labels)).any(1)
        return Pairs(batch[keep], corrupted[keep])

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return features per position. answer: the label. token: the current token. previous: the previous token (-1
        at [BOS]). distance: distance back to the token's last earlier occurrence (-1 if there is none)."""
        last = self.last_seen(batch.tokens)
        place = torch.arange(batch.tokens.shape[1], device=last.device)
        return {
            "answer": batch.labels,
            "token": batch.tokens,
            "previous": torch.nn.functional.pad(batch.tokens[:, :-1], (1, 0), value=-1),
            "distance": torch.where(last >= 0, place - last, -1),
        }
