"""Maximum of K numbers (the model organism of Gross et al. 2024, "Compact Proofs of Model Performance").

    3 1 4 1 =          the answer, read at '=', is 4

The models of the paper have no '=' and are read at the last number. With '=', all numbers play the same role: the
output of a model without positions depends only on how often each number occurs.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain, combinations_with_replacement, islice, product
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import check_size
from interp.families.algorithmic.tasks.numbers import EqualsTask
from interp.models.spec import Scalar
from interp.tasks.automata import Automaton, Read
from interp.tasks.batch import Batch
from interp.tasks.registry import register_task
from interp.tasks.structure import ProductOfSets


class Maximum(EqualsTask):
    """The largest of K numbers from 0 to v - 1. Both splits draw the numbers independently and uniformly."""

    defaults: ClassVar[Mapping[str, Scalar]] = {"K": 4, "v": 64}

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.terms = check_size("K", self.parameters["K"])
        self.base = check_size("v", self.parameters["v"], least=2)
        self.vocabulary = (*map(str, range(self.base)), *(["="] if self.equals else []))
        numbers = ("only", ("tokens",), ("list", *range(self.base)))
        self.rule = ("fold", numbers, 0, ("if", ("<", ("so_far",), ("item",)), ("item",), ("so_far",)))

    def answer(self, numbers: Int[Tensor, "rows terms"]) -> Int[Tensor, "rows"]:
        return numbers.amax(1)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n rows of K independent uniform numbers."""
        return self.of_numbers(torch.randint(0, self.base, (n, self.terms), generator=self.generator(split, seed)))

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features. answer: the maximum. second: the second largest number (equal to the maximum in a tie).
        times: how often the maximum occurs. is_largest: whether each position has it."""
        numbers, top = batch.tokens[:, : self.terms], batch.labels
        ordered = numbers.sort(1, descending=True).values
        return {
            "answer": top,
            "second": ordered[:, min(1, self.terms - 1)],
            "times": (numbers == top[:, None]).sum(1),
            "is_largest": (batch.tokens == top[:, None]).long(),
        }

    def products(self) -> Iterator[ProductOfSets]:
        """Yield one product per number m and place: m is the maximum, and first occurs at that place."""
        for m, at in product(range(self.base), range(self.terms)):
            if m or not at:
                behind = (range(m + 1),) * (self.terms - 1 - at)
                yield ProductOfSets((*(range(m),) * at, (m,), *behind, *[(self.base,)] * self.equals), m)


@register_task
class MaxOfK(Maximum):
    """The largest of K numbers from 0 to v - 1. Both splits draw the numbers independently and uniformly."""

    name = "max-of-k"

    def automata(self) -> Iterator[Automaton]:
        """Yield the automaton whose state is the largest number so far."""

        def step(largest: int, position: int, token: int) -> int | None:
            if (position == self.terms) != (token == self.base):
                return None
            return largest if position == self.terms else max(largest, token)

        places = tuple(range(self.terms + 1))
        yield Automaton(places, 0, step, (Read(self.terms, self.terms, int),))

    @property
    def n_multisets(self) -> int:
        """Number of inputs, without regard to the order of their numbers."""
        return math.comb(self.base + self.terms - 1, self.terms)

    def multisets(self, chunk: int = 4096) -> Iterator[tuple[Batch, Int[Tensor, "rows"]]]:
        """Yield, in chunks, one sorted input per multiset of K numbers and the number of orders of that multiset.

        These inputs suffice for anything that does not depend on the order of the numbers.
        """
        rows = combinations_with_replacement(range(self.base), self.terms)
        whole = math.factorial(self.terms)
        for _ in range(0, self.n_multisets, chunk):
            flat = torch.tensor(list(chain.from_iterable(islice(rows, chunk)))).view(-1, self.terms)
            # A multiset has K! / (product of the factorials of its counts) orders: each run of c equal numbers divides
            # K! by 1, 2, ..., c.
            run, orders = torch.ones(len(flat), dtype=torch.long), torch.full((len(flat),), whole)
            for place in range(1, self.terms):
                run = torch.where(flat[:, place] == flat[:, place - 1], run + 1, 1)
                orders = orders // run
            yield self.of_numbers(flat), orders


@register_task
class MaxAtLast(Maximum):
    """The largest of K numbers from 0 to v - 1, read at the last of them, as in the paper.

    Both splits draw numbers independently and uniformly.
    """

    name = "max-at-last"
    readout = "last"
    equals = False

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features of max-of-k, and the number at the query (last)."""
        features = super().features(batch)
        return {"answer": features.pop("answer"), "last": batch.tokens[:, -1], **features}
