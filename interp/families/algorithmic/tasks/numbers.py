"""Base classes of tasks on rows of numbers.

3 1 4 1 =          maximum of K numbers, answered at '='
17 95 =            addition mod p, answered at '='
7 2 9 7 2          induction: predict the token that followed the last earlier occurrence
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError
from interp.tasks.batch import Batch, digits_of
from interp.tasks.task import Task


class NumberTask(Task):
    """Rows of numbers of one length. A subclass defines the inputs and their labels."""

    family = "algorithmic"
    separated = True

    @abstractmethod
    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of tokens. Raises InterpError for a row that is not an input."""

    def parse(self, text: str) -> list[int]:
        """Return the token ids of words separated by spaces or commas, such as "3 1 4 1 =".

        Raises InterpError for text that is not an input.
        """
        ids = super().parse(text.replace("=", " = "))
        self.check_input(torch.tensor([ids]))
        return ids


class EqualsTask(NumberTask):
    """Rows of `terms` numbers below `base`, then '=' if `equals`. The answer, also such a number, is read last."""

    readout = "="
    equals: ClassVar[bool] = True
    terms: int
    base: int

    @property
    def answer_words(self) -> tuple[str, ...]:
        """One word per output: the numbers."""
        return self.vocabulary[: self.base]

    def answer(self, numbers: Int[Tensor, "rows terms"]) -> Int[Tensor, "rows"]:
        """Return the right answer for each row of numbers."""
        raise NotImplementedError

    def of_numbers(self, numbers: Int[Tensor, "rows terms"]) -> Batch:
        """Label rows of numbers, after appending '=' if the task has it."""
        return self.batch(torch.nn.functional.pad(numbers, (0, int(self.equals)), value=self.base))

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of tokens. Raises InterpError for a row that is not an input."""
        self.check_input(tokens)
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        return Batch(tokens, lengths, self.answer(tokens[:, : self.terms]))

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError unless every row consists of `terms` numbers, and '=' if the task has it."""
        form = f"{self.terms} numbers below {self.base}{' and ' + repr('=') if self.equals else ''}"
        if tokens.shape[1] != self.terms + self.equals:
            raise InterpError(f"rows of {tokens.shape[1]} tokens are not inputs of task {self.name}: give {form}")
        numbers, rest = tokens[:, : self.terms], tokens[:, self.terms :]
        self.check_rows(((numbers >= 0) & (numbers < self.base)).all(1) & (rest == self.base).all(1), tokens, form)

    @property
    def n_inputs(self) -> int:
        """Number of inputs."""
        return int(self.base**self.terms)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield every input, in lexicographic order, in batches of at most `chunk` rows."""
        for start in range(0, self.n_inputs, chunk):
            yield self.of_numbers(self.digits(torch.arange(start, min(start + chunk, self.n_inputs))))

    def digits(self, index: Int[Tensor, "rows"]) -> Int[Tensor, "rows terms"]:
        """Return the numbers of the inputs with these indices in lexicographic order."""
        return digits_of(index, self.base, self.terms)
