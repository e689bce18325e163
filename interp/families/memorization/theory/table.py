"""Conditional tables: for each context, the exact distribution of the next token."""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.errors import InterpError

SUM_TOLERANCE = 1e-6
"""Largest allowed distance of a row's sum from 1, for float32 rounding. Rows are then divided by their sum."""
ROUNDING = 1e-12
"""Rows whose sum is closer to 1 than this are not changed."""


@dataclass(frozen=True, eq=False)
class ConditionalTable:
    """The distribution pi(output | context) of a next token, and how likely each context is.

    conditional   (contexts, outputs), rows sum to one, float64, read-only
    prior         (contexts,), sums to one
    contexts      each context's tokens, oldest first
    Raises InterpError, one sentence, for a negative or NaN entry, a row that does not sum to one, or a wrong shape.
    `as_table` fills in a uniform prior and contexts (0,), (1,), ... Source: Dana 2024, section 3 (k-gram) and
    section 4 (the bigram problem, matrix Pi).
    """

    conditional: Float[np.ndarray, "contexts outputs"]
    prior: Float[np.ndarray, " contexts"]
    contexts: tuple[tuple[int, ...], ...]
    name: str = "table"

    def __post_init__(self) -> None:
        conditional = _checked_rows(self.conditional)
        prior = _checked_prior(self.prior, len(conditional))
        contexts = _checked_contexts(self.contexts, len(conditional))
        for array in (conditional, prior):
            array.setflags(write=False)
        object.__setattr__(self, "conditional", conditional)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "contexts", contexts)

    @property
    def n_contexts(self) -> int:
        return self.conditional.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.conditional.shape[1]

    @property
    def order(self) -> int:
        """Tokens in a context: 1 for a bigram table, k for a k-gram table."""
        return len(self.contexts[0])

    @property
    def n_tokens(self) -> int:
        """Size of the input vocabulary: one more than the largest token of any context."""
        return 1 + max(max(context) for context in self.contexts)

    @property
    def complete(self) -> bool:
        """Whether every one of the n_tokens ** order contexts is there, in lexicographic order."""
        if self.n_contexts != self.n_tokens**self.order:
            return False
        return self.contexts == all_contexts(self.n_tokens, self.order)

    @property
    def has_zeros(self) -> bool:
        """Whether there are zeros: a rank-d minimum may then be an infimum, approached as logits grow (erratum 3)."""
        return bool((self.conditional == 0).any())

    def log_conditional(self, floor: float = 1e-12) -> Float[np.ndarray, "contexts outputs"]:
        """Return log pi, with probabilities below `floor` raised to it: log 0 would dominate the singular values."""
        if not 0 < floor < 1:
            raise InterpError(f"floor is {floor}; a probability between 0 and 1 (both excluded) is needed")
        return np.log(np.maximum(self.conditional, floor))


def as_table(table: Any, prior: Any = None, contexts: Any = None, name: str = "array") -> ConditionalTable:
    """Make a ConditionalTable from another, an object with .conditional and .prior, or an array (N, M) or (N, .., M).

    An array with k leading axes of token indices becomes a k-gram table. `prior` and `contexts` override the table's;
    by default, the prior is uniform and the contexts are (0,), (1,), ...
    """
    if isinstance(table, ConditionalTable) and prior is None and contexts is None:
        return table
    if hasattr(table, "conditional"):
        prior = getattr(table, "prior", None) if prior is None else prior
        contexts = getattr(table, "contexts", None) if contexts is None else contexts
        name, table = getattr(table, "name", name), table.conditional
    conditional = _float_array("the table", table)
    if conditional.ndim < 2:
        raise InterpError(
            f"the table has shape {conditional.shape}; (contexts, outputs) or (tokens, .., outputs) is needed"
        )
    leading = conditional.shape[:-1]
    if len(set(leading)) != 1:
        raise InterpError(
            f"the table has shape {conditional.shape}; the context axes of a k-gram table must be equally long"
        )
    n = math.prod(leading)
    if prior is None:
        prior = np.full(n, 1.0 / max(n, 1))
    else:
        prior = _float_array("the prior", prior)
        prior = _checked_prior(prior.reshape(-1) if prior.shape == leading else prior, n)
    contexts = all_contexts(leading[0], len(leading)) if contexts is None else _checked_contexts(contexts, n)
    return ConditionalTable(conditional.reshape(n, conditional.shape[-1]), prior, contexts, str(name))


def all_contexts(n_tokens: int, order: int) -> tuple[tuple[int, ...], ...]:
    """All n_tokens ** order contexts in lexicographic order, oldest token first."""
    return tuple(product(range(n_tokens), repeat=order))


def _float_array(what: str, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InterpError(f"{what} is not an array of numbers: {problem}") from None


def _checked_rows(value: Any) -> np.ndarray:
    rows = _float_array("the table", value)
    if rows.ndim != 2 or 0 in rows.shape:
        raise InterpError(f"the table has shape {rows.shape}; (contexts, outputs), neither empty, is needed")
    if rows.shape[1] < 2:
        raise InterpError("the table has one output, so there is nothing to predict; at least two are needed")
    if not np.isfinite(rows).all():
        i, j = np.argwhere(~np.isfinite(rows))[0]
        raise InterpError(f"entry ({i}, {j}) of the table is {rows[i, j]}; every entry must be a finite probability")
    if (rows < 0).any():
        i, j = np.argwhere(rows < 0)[0]
        raise InterpError(f"entry ({i}, {j}) of the table is {rows[i, j]}; a probability cannot be negative")
    sums = rows.sum(axis=1)
    wrong = np.abs(sums - 1) > SUM_TOLERANCE
    if wrong.any():
        worst = int(np.argmax(np.abs(sums - 1)))
        raise InterpError(
            f"{wrong.sum()} of {len(rows)} rows of the table do not sum to one "
            f"(row {worst} sums to {sums[worst]:.6g}); divide each row by its sum"
        )
    # Do not divide rows that sum to 1 up to rounding, so that checking a table twice does not change it.
    return np.where(np.abs(sums - 1)[:, None] > ROUNDING, rows / sums[:, None], rows)


def _checked_prior(value: Any, n_contexts: int) -> np.ndarray:
    prior = _float_array("the prior", value)
    if prior.shape != (n_contexts,):
        raise InterpError(
            f"the prior has shape {prior.shape} but the table has {n_contexts} contexts; ({n_contexts},) is needed"
        )
    if not np.isfinite(prior).all() or (prior < 0).any():
        bad = int(np.argmax(~np.isfinite(prior) | (prior < 0)))
        raise InterpError(f"entry {bad} of the prior is {prior[bad]}; every entry must be a probability")
    if abs(prior.sum() - 1) > SUM_TOLERANCE:
        raise InterpError(f"the prior sums to {prior.sum():.6g}, not to one; divide it by its sum")
    return prior / prior.sum() if abs(prior.sum() - 1) > ROUNDING else prior


def _checked_contexts(value: Any, n_contexts: int) -> tuple[tuple[int, ...], ...]:
    contexts = tuple(tuple(int(token) for token in context) for context in value)
    if len(contexts) != n_contexts:
        raise InterpError(
            f"the table has {n_contexts} rows but {len(contexts)} contexts were given; give one for each row"
        )
    if len({len(context) for context in contexts}) != 1:
        raise InterpError("the contexts of a table must all have the same number of tokens")
    if len(set(contexts)) != n_contexts:
        raise InterpError("the contexts of a table must all be different")
    if min(min(context, default=-1) for context in contexts) < 0:
        raise InterpError("the contexts of a table must be of at least one token each, and no token negative")
    return contexts
