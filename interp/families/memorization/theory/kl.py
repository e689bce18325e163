"""Exact entropy, Kullback-Leibler divergence and accuracy over a whole table, in nats, with no sampling."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp.errors import InterpError
from interp.families.memorization.theory.table import ConditionalTable, as_table


def entropy_rows(conditional: Float[np.ndarray, "contexts outputs"]) -> Float[np.ndarray, " contexts"]:
    """H(pi_i) = -sum_o pi log pi >= 0 of each row, with 0 log 0 = 0."""
    logs = np.log(np.where(conditional > 0, conditional, 1.0))
    return -(conditional * logs).sum(axis=1) + 0.0


def entropy(table: Any, prior: Any = None) -> float:
    """The prior-weighted entropy, which is the cross-entropy loss of a perfect model."""
    checked = as_table(table, prior)
    return float(checked.prior @ entropy_rows(checked.conditional))


def log_softmax(logits: Float[np.ndarray, "... outputs"]) -> Float[np.ndarray, "... outputs"]:
    """log softmax along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def kl_rows(
    conditional: Float[np.ndarray, "contexts outputs"], logits: Float[np.ndarray, "contexts outputs"]
) -> Float[np.ndarray, " contexts"]:
    """KL(pi_i || softmax(f_i)) of each row. Zeros of pi contribute nothing (0 log 0 = 0).

    Source: Dana 2024, section 4; the sign and index slips of d^S_KL as in erratum 1.
    """
    positive = conditional > 0
    ratio = np.log(np.where(positive, conditional, 1.0)) - log_softmax(logits)
    return np.maximum((conditional * np.where(positive, ratio, 0.0)).sum(axis=1), 0.0)


def kl_divergence(table: Any, logits: Any, prior: Any = None) -> float:
    """The prior-weighted mean of `kl_rows`: d_KL(pi, f), exact. logits: array or tensor (contexts, outputs)."""
    checked = as_table(table, prior)
    return float(checked.prior @ kl_rows(checked.conditional, checked_logits(checked, logits)))


def checked_logits(table: ConditionalTable, logits: Any) -> Float[np.ndarray, "contexts outputs"]:
    """Return the logits as float64. Raises InterpError if they do not fit the table or contain NaN."""
    array = np.asarray(logits.detach().cpu() if hasattr(logits, "detach") else logits, dtype=np.float64)
    if array.shape != table.conditional.shape:
        raise InterpError(f"the table has shape {table.conditional.shape} but the logits have shape {array.shape}")
    if np.isnan(array).any():
        raise InterpError("the logits contain NaN, so their divergence is not defined")
    return array


def checked_unembedding(W_U: Any, n_outputs: int) -> Float[np.ndarray, "d outputs"]:
    """Return W_U as a float64 array (d, outputs). Raises InterpError for other shapes and infinite or NaN entries."""
    try:
        array = np.asarray(W_U, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InterpError("W_U is no array of numbers") from error
    if array.ndim != 2 or array.shape[1] != n_outputs or array.shape[0] < 1:
        raise InterpError(f"W_U has shape {array.shape}; (d, outputs) = (d, {n_outputs}) is needed")
    if not np.isfinite(array).all():
        raise InterpError("W_U has entries that are not finite")
    return array


def centered_residual(
    conditional: Float[np.ndarray, "contexts outputs"], logits: Float[np.ndarray, "contexts outputs"]
) -> Float[np.ndarray, "contexts outputs"]:
    """fbar = f - log pi - E_{o ~ pi_i}[f - log pi], for which KL_i = log E_{o ~ pi_i}[exp fbar] exactly (erratum 10).

    Raises InterpError for a table with zeros: log pi is not finite there.
    """
    if (conditional <= 0).any():
        raise InterpError("the table has zeros, for which f - log pi is not finite; the bounds need full support")
    residual = logits - np.log(conditional)
    return residual - (conditional * residual).sum(axis=1, keepdims=True)


def right_rows(
    conditional: Float[np.ndarray, "contexts outputs"], logits: Float[np.ndarray, "contexts outputs"]
) -> Bool[np.ndarray, " contexts"]:
    """Whether the largest logit is at a most likely output (memorized). A tie with any other output counts as wrong."""
    modes = conditional == conditional.max(axis=1, keepdims=True)
    best = np.where(modes, logits, -np.inf).max(axis=1)
    return best > np.where(modes, -np.inf, logits).max(axis=1)


def memorized(table: Any, logits: Any) -> int:
    """The number of memorized associations: contexts with the largest logit at a most likely output."""
    checked = as_table(table)
    return int(right_rows(checked.conditional, checked_logits(checked, logits)).sum())


def accuracy(table: Any, logits: Any, prior: Any = None) -> float:
    """The prior probability of the contexts that are memorized, from 0 to 1."""
    checked = as_table(table, prior)
    return float(checked.prior @ right_rows(checked.conditional, checked_logits(checked, logits)))
