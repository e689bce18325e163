"""Addition mod p (Power et al. 2022; Nanda et al. 2023, "Progress measures for grokking", section 3).

17 105 =           p = 113: the answer, read at '=', is 9
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.families.algorithmic.tasks.numbers import EqualsTask
from interp.models.spec import Scalar
from interp.tasks.batch import Batch
from interp.tasks.registry import register_task

VALIDATION = 512
"""Number of test pairs on which the accuracy is measured after each of the thousands of epochs."""


@register_task
class ModularAddition(EqualsTask):
    """a + b mod p. data_seed splits the p^2 ordered pairs into a training set and a test set.

    p: the modulus, prime or not. share: share of the pairs in the training set. The validation set is the first 512
    pairs of the shuffled test set.
    """

    name = "modular-addition"
    splits = ("train", "validation", "test")
    defaults: ClassVar[Mapping[str, Scalar]] = {"p": 113, "share": 0.3}
    terms = 2

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.base = check_size("p", self.parameters["p"], least=2)
        self.share = float(self.parameters["share"])
        if not 0 < self.share < 1 or not 0 < self.n_train < self.n_inputs:
            raise InterpError(f"share = {self.share} must leave some of the {self.n_inputs} pairs to both splits")
        self.vocabulary = (*map(str, range(self.base)), "=")
        numbers = ("only", ("tokens",), ("list", *range(self.base)))
        self.rule = ("%", ("fold", numbers, 0, ("+", ("so_far",), ("item",))), self.base)
        self.cyclic = {"residues": self.vocabulary[: self.base]}

    @property
    def n_train(self) -> int:
        """Number of pairs in the training set."""
        return round(self.share * self.n_inputs)

    def answer(self, numbers: Int[Tensor, "rows terms"]) -> Int[Tensor, "rows"]:
        return numbers.sum(1) % self.base

    def dataset(self, split: str) -> Batch:
        """Return all pairs of a split, in shuffled order."""
        order = torch.randperm(self.n_inputs, generator=torch.Generator().manual_seed(self.data_seed))
        end = {"train": self.n_train, "validation": self.n_train + VALIDATION, "test": self.n_inputs}
        start = 0 if self.check_split(split) == "train" else self.n_train
        return self.of_numbers(self.digits(order[start : end[split]]))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n pairs of a split with replacement."""
        part = self.dataset(split)
        return part[torch.randint(0, len(part), (n,), generator=self.generator(split, seed))]

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features. answer: the sum mod p. first, second: the summands. carries: whether a + b >= p."""
        first, second = batch.tokens[:, 0], batch.tokens[:, 1]
        return {
            "answer": batch.labels,
            "first": first,
            "second": second,
            "carries": (first + second >= self.base).long(),
        }
