"""The kinds of memorization tables: k-gram, bigram, look-up, low-rank plus noise, and your own.

Each kind is a registered task and a function: `interp.families.memorization.bigram(N=100, M=50)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.families.memorization.tasks.conditional import TableTask
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table
from interp.families.memorization.theory.table import ConditionalTable, as_table
from interp.models.spec import Scalar
from interp.tasks.registry import register_task

Prior = str | Sequence[float] | np.ndarray
Kind = TypeVar("Kind", bound=TableTask)


@register_task
class KGram(TableTask):
    """Each context of k tokens has a Dirichlet-distributed next token (Dana 2024, section 3)."""

    name = "kgram"
    defaults: ClassVar[Mapping[str, Scalar]] = {"N": 10, "M": 10, "k": 2, "concentration": 1.0, "prior": "uniform"}

    def _make(self) -> ConditionalTable:
        order = self._size("k") if "k" in self.parameters else 1
        return dirichlet_table(
            self._size("N"),
            self._size("M"),
            float(self.parameters["concentration"]),
            order=order,
            prior=str(self.parameters["prior"]),
            seed=self.data_seed,
        )


@register_task
class Bigram(KGram):
    """Each of N tokens has a Dirichlet-distributed next token among M (Dana 2024, section 4)."""

    name = "bigram"
    defaults: ClassVar[Mapping[str, Scalar]] = {"N": 100, "M": 50, "concentration": 0.1, "prior": "zipf"}


@register_task
class LookupTask(TableTask):
    """Each context has one correct next token; noise is spread over the others (Dana 2024, section 4.2).

    noise: probability of a wrong next token. noise_concentration: concentration of the Dirichlet distribution of wrong
    tokens; 0 makes it uniform.
    """

    name = "lookup"
    defaults: ClassVar[Mapping[str, Scalar]] = {
        "N": 50,
        "M": 50,
        "k": 2,
        "noise": 0.0,
        "noise_concentration": 0.0,
        "prior": "uniform",
    }

    def _make(self) -> ConditionalTable:
        return lookup_table(
            self._size("N"),
            self._size("M"),
            float(self.parameters["noise"]),
            order=self._size("k"),
            noise_concentration=float(self.parameters["noise_concentration"]) or None,
            prior=str(self.parameters["prior"]),
            seed=self.data_seed,
        )


@register_task
class LowRank(TableTask):
    """The logarithms of the probabilities are a matrix of low rank plus noise (Dana 2024, section 4.1)."""

    name = "low-rank"
    defaults: ClassVar[Mapping[str, Scalar]] = {"N": 100, "M": 50, "k": 1, "rank": 8, "noise": 0.1, "prior": "uniform"}

    def _make(self) -> ConditionalTable:
        return low_rank_table(
            self._size("N"),
            self._size("M"),
            check_size("rank", int(self.parameters["rank"]), least=0),
            float(self.parameters["noise"]),
            order=self._size("k"),
            prior=str(self.parameters["prior"]),
            seed=self.data_seed,
        )


@register_task
class GivenTable(TableTask):
    """A conditional table of your own, which checkpoints store."""

    name = "table"
    needs_tables = True

    def __init__(self, data_seed: int = 0, table: ConditionalTable | None = None) -> None:
        if table is None:
            raise InterpError("task table needs a table: interp.families.memorization.table(array, prior)")
        self._own = table
        super().__init__(data_seed)

    def _make(self) -> ConditionalTable:
        return self._own

    def tables(self) -> dict[str, Tensor]:
        return {
            "conditional": torch.from_numpy(self.conditional.copy()),
            "prior": torch.from_numpy(self.prior.copy()),
            "contexts": torch.tensor(self.contexts),
        }

    @classmethod
    def from_tables(cls, tables: Mapping[str, Tensor], data_seed: int = 0, **parameters: Scalar) -> GivenTable:
        """Make the task that has these tables. Raises InterpError if they are not a conditional table."""
        if set(tables) != {"conditional", "prior", "contexts"} or parameters:
            raise InterpError("task table needs the tables conditional, prior and contexts, and no parameters")
        contexts = tables["contexts"]
        if contexts.ndim != 2 or contexts.dtype != torch.int64:
            raise InterpError(f"the contexts have shape {tuple(contexts.shape)}; (contexts, k) token ids are needed")
        for name, tensor in tables.items():
            if not tensor.numel():
                raise InterpError(f"the {name} has shape {tuple(tensor.shape)}: a table has at least one context")
            if name != "contexts" and tensor.dtype not in (torch.float64, torch.float32):
                raise InterpError(f"the {name} has dtype {tensor.dtype}; float64 or float32 is needed")
        largest, k = int(contexts.max()), contexts.shape[1]
        if int(contexts.min()) < 0 or largest >= 2**20 or float(largest + 1) ** min(k, 300) >= 2**62:
            raise InterpError(f"contexts of {k} tokens up to {largest:,} are too large for a table task")
        return cls(data_seed, as_table(tables["conditional"], tables["prior"], contexts.tolist(), cls.name))

    def __repr__(self) -> str:
        return f"GivenTable({len(self.contexts)} contexts of {self.order} tokens, {self.n_out} outputs)"


# ---------------------------------------------------------------- by function


def bigram(
    N: int = 100, M: int = 50, concentration: float = 0.1, prior: Prior = "zipf", seed: int = 0
) -> Bigram | GivenTable:
    """Make a table of N tokens, each with a Dirichlet(concentration) distribution over M next tokens.

    prior: "uniform", "zipf" (the i-th token proportional to 1 / i), "stationary" (of the chain; M = N only), or N
    probabilities. Raises InterpError for invalid sizes, concentrations or priors.
    """
    return _with_prior(Bigram, prior, seed, N=N, M=M, concentration=concentration)


def kgram(
    N: int = 10, M: int = 10, k: int = 2, concentration: float = 1.0, prior: Prior = "uniform", seed: int = 0
) -> KGram | GivenTable:
    """Make a table of N ** k contexts, each with a Dirichlet distribution over M next tokens; prior as in `bigram`."""
    return _with_prior(KGram, prior, seed, N=N, M=M, k=k, concentration=concentration)


def lookup(
    N: int = 50,
    M: int = 50,
    k: int = 2,
    noise: float = 0.0,
    noise_concentration: float = 0.0,
    prior: Prior = "uniform",
    seed: int = 0,
) -> LookupTask | GivenTable:
    """Make a table of N ** k contexts with one correct next token of probability 1 - noise; prior as in `bigram`."""
    return _with_prior(LookupTask, prior, seed, N=N, M=M, k=k, noise=noise, noise_concentration=noise_concentration)


def low_rank(
    N: int = 100, M: int = 50, k: int = 1, rank: int = 8, noise: float = 0.1, prior: Prior = "uniform", seed: int = 0
) -> LowRank | GivenTable:
    """Make the table softmax(A B + noise * G), with standard normal A (.., rank), B and G; prior as in `bigram`."""
    return _with_prior(LowRank, prior, seed, N=N, M=M, k=k, rank=rank, noise=noise)


def _with_prior(kind: type[Kind], prior: Prior, seed: int, **sizes: Scalar) -> Kind | GivenTable:
    """Make a task of this kind; with a prior of numbers, as a table of the user's own."""
    if isinstance(prior, str):
        return kind(seed, **sizes, prior=prior)
    return table(kind(seed, **sizes, prior="uniform"), prior)


def table(conditional: Any, prior: Any = None, contexts: Any = None) -> GivenTable:
    """Make a task from your own table: an array (N, M) or (N, .., N, M), a ConditionalTable, or another table task.

    prior: probabilities of the contexts (default: uniform). contexts: token ids of each row's context, oldest first.
    Raises InterpError for rows that do not sum to one, negative or NaN entries, and shapes that do not fit.
    """
    return GivenTable(table=as_table(conditional, prior, contexts, GivenTable.name))


def table_task(given: Any, prior: Any = None) -> TableTask:
    """Return a table as a task: unchanged if it is one already, otherwise `table(given, prior)`."""
    return given if isinstance(given, TableTask) and prior is None else table(given, prior)
