"""Memorization: a model must memorize the next token's distribution for each context of k tokens.

A task is a conditional table: the distribution of the next token for every context, and the prior distribution of the
contexts. An input is a row of tokens that ends with a context. There is one output for each of the M next tokens, which
need not be the N input tokens. Models are read at the last position.

In the split "train", labels are next tokens drawn from the table. In the split "test", the label is the context's most
likely next token (the first in a tie), which is the association to memorize.
Source: Dana 2024, sections 3 and 4.
"""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_size
from interp.families.memorization.theory.table import ConditionalTable
from interp.models.spec import Scalar
from interp.tasks.batch import Batch
from interp.tasks.task import Task

TRAINING_ROWS = 16_384
"""Number of rows of the fixed training sample, as in the published capacity study."""


class TableTask(Task):
    """A conditional table as a task. Subclasses make the table from their parameters.

    Functions of tables, such as interp.families.memorization.rank_d_optimum, accept the task itself.
    """

    family = "memorization"
    separated = True
    readout = "last"

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        check_size("seed", data_seed, least=0)
        self.table = self._make()
        self.vocabulary = tuple(str(token) for token in range(self.table.n_tokens))

    @abstractmethod
    def _make(self) -> ConditionalTable:
        """Make the table from the parameters and the seed."""

    # ------------------------------------------------------------ the table

    @property
    def n_out(self) -> int:
        return self.table.n_outputs

    @property
    def conditional(self) -> Float[np.ndarray, "contexts outputs"]:
        """The probabilities pi(next token | context); each row sums to one."""
        return self.table.conditional

    @property
    def prior(self) -> Float[np.ndarray, " contexts"]:
        """The probability of each context."""
        return self.table.prior

    @property
    def contexts(self) -> tuple[tuple[int, ...], ...]:
        """The contexts in the order of the table's rows, oldest token first."""
        return self.table.contexts

    @property
    def order(self) -> int:
        """k, the number of tokens in a context."""
        return self.table.order

    @cached_property
    def targets(self) -> Int[Tensor, "contexts"]:
        """Each context's association to memorize: its most likely next token (the first in a tie)."""
        return torch.from_numpy(self.conditional.argmax(axis=1))

    @cached_property
    def _codes(self) -> tuple[Tensor, Tensor]:
        """Contexts as numbers in base N, in increasing order, with their rows in the table."""
        codes = self._code(torch.tensor(self.contexts))
        return codes.sort()

    def _code(self, tokens: Int[Tensor, "rows k"]) -> Int[Tensor, "rows"]:
        powers = self.d_vocab ** torch.arange(self.order - 1, -1, -1, device=tokens.device)
        return (tokens * powers).sum(1)

    def context_index(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
        """Return the table row of the context that ends each row of tokens.

        Raises InterpError for rows that are too short or end in a context that the table lacks.
        """
        if tokens.shape[1] < self.order:
            raise InterpError(
                f"rows of {tokens.shape[1]} tokens: task {self.name} needs at least the {self.order} of a context"
            )
        codes, rows = self._codes
        wanted = self._code(tokens[:, -self.order :].cpu())
        place = torch.searchsorted(codes, wanted).clamp(max=len(codes) - 1)
        if not (known := codes[place] == wanted).all():
            row = int((~known).int().argmax())
            raise InterpError(
                f"row {row} ends in {self.format(tokens[row, -self.order :])!r}, a context that the table lacks"
            )
        return rows[place]

    # ------------------------------------------------------------ text, inputs and answers

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        self.context_index(tokens)

    # ------------------------------------------------------------ samples and the whole domain

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of tokens with the associations to memorize."""
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), self.targets[self.context_index(tokens)])

    @property
    def n_inputs(self) -> int:
        return len(self.contexts)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield every context, in the order of the table."""
        for rows in torch.tensor(self.contexts).split(chunk):
            yield self.batch(rows)

    def weights(self, batch: Batch) -> Float[Tensor, "rows"]:
        """Return the prior probability of each row's context."""
        return torch.tensor(self.prior)[self.context_index(batch.tokens)]

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the answer and each token of the context."""
        tokens = batch.tokens[:, -self.order :]
        return {"answer": batch.labels, **{f"token {i + 1}": tokens[:, i] for i in range(self.order)}}

    @property
    def answer_words(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.n_out)))

    def all_contexts(self) -> Batch:
        """Return every context once, in the order of the table, with its most likely next token."""
        return self.batch(torch.tensor(self.contexts))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n contexts from the prior. Labels: drawn from the table (train) or the most likely next token (test)."""
        rng = np.random.default_rng((seed, self.splits.index(self.check_split(split))))
        rows = rng.choice(len(self.prior), size=n, p=self.prior)
        batch = self.batch(torch.tensor(self.contexts)[torch.from_numpy(rows)])
        if split == "test":
            return batch
        return Batch(batch.tokens, batch.lengths, torch.from_numpy(_draw(self.conditional[rows], rng)))

    def dataset(self, split: str) -> Batch:
        """Return the fixed training sample of 16,384 rows. The test split has none: see all_contexts."""
        if split != "train":
            raise UnsupportedError(f"task {self.name} has a fixed data set for training only; see all_contexts()")
        return self.sample(TRAINING_ROWS, "train", seed=self.data_seed)

    def sequences(self, n: int, length: int, seed: int = 0) -> Int[Tensor, "rows length"]:
        """Draw n sequences: k tokens from the prior, then each next token from the table given the last k.

        Raises InterpError unless M = N and the table has all contexts.
        """
        if self.n_out != self.d_vocab or not self.table.complete:
            raise InterpError(
                f"task {self.name}: sequences need as many outputs as tokens and a table of all contexts; this task "
                f"has {self.d_vocab} tokens, {self.n_out} outputs and {len(self.contexts)} contexts"
            )
        rng = np.random.default_rng((seed, len(self.splits)))
        rows = rng.choice(len(self.prior), size=n, p=self.prior)
        tokens = np.empty((n, length), dtype=np.int64)
        tokens[:, : self.order] = np.array(self.contexts)[rows]
        for position in range(self.order, length):
            tokens[:, position] = _draw(self.conditional[rows], rng)
            rows = (rows * self.d_vocab + tokens[:, position]) % len(self.prior)
        return torch.from_numpy(tokens)

    def _size(self, name: str) -> int:
        return check_size(name, int(self.parameters[name]))


def _draw(rows: Float[np.ndarray, "n outputs"], rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Draw one output from each row's distribution; outputs of probability zero are never drawn."""
    cumulative = rows.cumsum(axis=1)
    return (rng.random((len(rows), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
