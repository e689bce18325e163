"""Maximum of K numbers, read at the last number (as in Gross et al. 2024, "Compact Proofs of Model Performance").

    3 1 4 1          the answer, read at the last number, is 4

The query token is a number; in task `max-of-k`, it is always '='.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.budget import check_size
from interp.errors import InterpError
from interp.spec import Scalar
from interp.tasks.algorithmic import EqualsTask
from interp.tasks.batch import Batch
from interp.tasks.products import Product
from interp.tasks.registry import register_task


@register_task
class MaxAtLast(EqualsTask):
    """The largest of K numbers from 0 to v - 1; both splits draw numbers independently and uniformly."""

    name = "max-at-last"
    readout = "last"
    defaults: ClassVar[Mapping[str, Scalar]] = {"K": 4, "v": 64}

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.terms = check_size("K", self.parameters["K"])
        self.base = check_size("v", self.parameters["v"], least=2)
        self.vocabulary = tuple(map(str, range(self.base)))
        numbers = ("only", ("tokens",), ("list", *range(self.base)))
        self.rule = ("fold", numbers, 0, ("if", ("<", ("so_far",), ("item",)), ("item",), ("so_far",)))

    def answer(self, numbers: Int[Tensor, "rows terms"]) -> Int[Tensor, "rows"]:
        return numbers.amax(1)

    def of_numbers(self, numbers: Int[Tensor, "rows terms"]) -> Batch:
        """Label rows of numbers."""
        return self.batch(numbers)

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of tokens. Raises InterpError for a row that is not an input."""
        self.check_input(tokens)
        lengths = torch.full((len(tokens),), self.terms, device=tokens.device)
        return Batch(tokens, lengths, self.answer(tokens))

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError unless every row consists of `terms` numbers."""
        form = f"{self.terms} numbers below {self.base}"
        if tokens.shape[1] != self.terms:
            raise InterpError(f"rows of {tokens.shape[1]} tokens are not inputs of task {self.name}: give {form}")
        self.refuse(((tokens >= 0) & (tokens < self.base)).all(1), tokens, form)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n rows of K independent uniform numbers."""
        check_size("n", n, least=0)
        return self.of_numbers(torch.randint(0, self.base, (n, self.terms), generator=self.generator(split, seed)))

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features. answer: the maximum. last: the number at the query. second: the second largest number
        (equal to the maximum in a tie). times: how often the maximum occurs. is_largest: whether each position has it.
        """
        numbers, top = batch.tokens, batch.labels
        ordered = numbers.sort(1, descending=True).values
        return {
            "answer": top,
            "last": numbers[:, -1],
            "second": ordered[:, min(1, self.terms - 1)],
            "times": (numbers == top[:, None]).sum(1),
            "is_largest": (numbers == top[:, None]).long(),
        }

    def products(self) -> Iterator[Product]:
        """Yield one product per number m and place: m is the maximum, and first occurs at that place."""
        for m, at in product(range(self.base), range(self.terms)):
            if m or not at:
                yield Product((*(range(m),) * at, (m,), *(range(m + 1),) * (self.terms - 1 - at)), m)
