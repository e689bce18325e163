"""Bounds on the divergence of Theorem 3's look-up construction, one number a context, in nats."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.errors import InterpError, one_of
from interp.families.memorization.theory.kl import entropy_rows

Rows = Float[np.ndarray, " contexts"]
Table = Float[np.ndarray, "contexts outputs"]
Targets = Int[np.ndarray, " contexts"]


def theorem3_bound(conditional: Table, targets: Targets, deviation: float, *, statement: str = "corrected") -> Rows:
    """Bound on KL_i of the map with lambda from the entropy equation, C = max |W_U^T W_U - I| below 1/2.

    corrected   (1 - pi_g) log((M - 1) / (e^H - 1)) (1 + 2C) / (1 - 2C)
    loose       the same with the superfluous C d_TV(pi~, uniform) of the print kept in the numerator: true, larger
    printed     with e^-H - 1: the logarithm of a negative number for every H > 0, so NaN
    Raises InterpError for C of 1/2 or more. Source: Dana 2024, Theorem 3; erratum 16.
    """
    if not 0 <= deviation < 0.5:
        raise InterpError(f"C = max |W_U^T W_U - I| is {deviation:.3g}; the bound holds for C below 1/2 only")
    m, p_g, others = _parts(conditional, targets)
    H = entropy_rows(conditional)
    numerator = np.full(len(H), 1 + 2 * deviation)
    if statement == "loose":
        numerator = numerator + deviation * np.abs(others - 1 / (m - 1)).sum(axis=1) / 2
    elif statement not in ("corrected", "printed"):
        raise InterpError(one_of("statement", statement, ("corrected", "loose", "printed")))
    with np.errstate(invalid="ignore", divide="ignore"):
        exponent = np.expm1(-H if statement == "printed" else H)
        return (1 - p_g) * np.log((m - 1) / exponent) * numerator / (1 - 2 * deviation)


def theorem3_unit_bound(conditional: Table, targets: Targets, mu: float) -> Rows:
    """The same for unit-norm columns of coherence mu below 1: the factor is (1 + mu) / (1 - mu) (erratum 16)."""
    if not 0 <= mu < 1:
        raise InterpError(f"the coherence is {mu:.3g}; the bound holds for unit-norm columns of coherence below 1 only")
    m, p_g, _ = _parts(conditional, targets)
    H = entropy_rows(conditional)
    with np.errstate(divide="ignore"):
        return (1 - p_g) * np.log((m - 1) / np.expm1(H)) * (1 + mu) / (1 - mu)


def match_bound(conditional: Table, targets: Targets, mu: float, scales: Rows) -> Rows:
    """Bound for lambda from q_g = pi_g and any W_U whose inner products between outputs are at most mu.

    KL_i <= (1 - pi_g) (log(M - 1) - H(pi~) + 2 mu |lambda|), pi~ the distribution of the other outputs (erratum 16).
    """
    m, p_g, others = _parts(conditional, targets)
    return (1 - p_g) * (np.log(m - 1) - entropy_rows(others) + 2 * mu * np.abs(scales))


def johnson_lindenstrauss_deviation(n_outputs: int, d: int) -> float:
    """C = sqrt(32 log(M + 1) / d), for which a W_U is known to exist. Below 1/2 only for d > 128 log(M + 1)."""
    return float(np.sqrt(32 * np.log(n_outputs + 1) / d))


def theorem3_least_width(n_outputs: int) -> int:
    """The least d with the printed C below 1/2: 307 for 10 outputs, 591 for 100, 1386 for 50257.

    Since d >= M - 1 gives divergence zero anyway, the printed bound says something new only where this is below M - 1.
    """
    return int(np.floor(128 * np.log(n_outputs + 1))) + 1


def _parts(conditional: Table, targets: Targets) -> tuple[int, Rows, Table]:
    """M, pi_g, and pi~: the distribution of the outputs other than g, given that it is not g (0 at g)."""
    n, m = conditional.shape
    p_g = conditional[np.arange(n), targets]
    others = np.where(np.arange(m) == np.asarray(targets)[:, None], 0.0, conditional)
    total = others.sum(axis=1, keepdims=True)
    return m, p_g, np.where(total > 0, others / np.where(total > 0, total, 1.0), 0.0)
