"""Upper bounds on the divergence of a map that almost fits the log table: printed, corrected, and sharper ones.

Unless stated otherwise, a function returns one number per context, in nats; their prior-weighted mean bounds the
divergence. All functions need a table with full support. Bounds that overflow are inf.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.errors import InterpError, check_one_of, one_of
from interp.families.memorization.theory.kl import centered_residual, kl_divergence
from interp.families.memorization.theory.rank_d import least_squares, weighted_least_squares
from interp.families.memorization.theory.spectrum import singular_values
from interp.families.memorization.theory.table import as_table

Rows = Float[np.ndarray, " contexts"]
Table = Float[np.ndarray, "contexts outputs"]
LEMMA_1_NORMS = ("l2", "sup", "mean", "pi", "text")


def exp3(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return e^x - 1 - x - x^2 / 2, by its series for small x. Source: Dana 2024, Lemma 1."""
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore"):
        plain = np.expm1(x) - x - x**2 / 2
    series = x**3 / 6 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7 * (1 + x / 8)))))
    return np.where(np.abs(x) < 0.1, series, plain)


@dataclass(frozen=True)
class Lemma1:
    """The claim |kl - approximation| <= error, in nats."""

    kl: float
    approximation: float
    error: float

    @property
    def holds(self) -> bool:
        return abs(self.kl - self.approximation) <= self.error * (1 + 1e-9) + 1e-13


def lemma1(table: Any, logits: Table, *, norm: str = "l2", prior: Any = None) -> Lemma1:
    """|d_KL - E log(1 + Var(fbar) / 2)| <= E exp3(norm of fbar).

    norm   'l2', as printed: true. 'sup': true and sharper. 'mean', E_{o ~ pi_i} exp3|fbar|: true and sharpest.
           'pi', the pi-weighted 2-norm: false. 'text', exp3(E ||fbar||_2), the sentence after the lemma: false.
    Assumes full support only. Source: Dana 2024, Lemma 1; erratum 12.
    """
    checked = as_table(table, prior)
    p, weights = checked.conditional, checked.prior
    fbar = centered_residual(p, logits)
    approximation = float(weights @ np.log1p((p * fbar**2).sum(axis=1) / 2))
    length = np.sqrt((fbar**2).sum(axis=1))
    errors = {
        "l2": weights @ exp3(length),
        "sup": weights @ exp3(np.abs(fbar).max(axis=1)),
        "mean": weights @ (p * exp3(np.abs(fbar))).sum(axis=1),
        "pi": weights @ exp3(np.sqrt((p * fbar**2).sum(axis=1))),
        "text": exp3(np.asarray(weights @ length)),
    }
    check_one_of("norm", norm, LEMMA_1_NORMS)
    return Lemma1(kl_divergence(checked, logits), approximation, float(errors[norm]))


def theorem2_ls(conditional: Table, sigma: float, *, statement: str = "printed") -> Rows:
    """Bound on KL_i(f_ls) from sigma = sigma_{d+1} of the centered log table.

    printed     log(1 + ||pi||_inf C sigma^2 / 2) + exp3(sqrt(C) sigma), C = 1 + N ||pi||_inf / sqrt 2: true for N >= 2
    tightened   log(1 + ||pi||_inf sigma^2 / 2) + exp3(sqrt(1 + ||pi||_inf) sigma): true, and below it
    Assumes f_ls and sigma of the same centering. Source: Dana 2024, Theorem 2 (not proved there); erratum 14.
    """
    largest = conditional.max(axis=1)
    if statement == "printed":
        C = 1 + len(conditional) * largest / np.sqrt(2)
        return np.log1p(largest / 2 * C * sigma**2) + exp3(np.sqrt(C) * sigma)
    if statement == "tightened":
        return np.log1p(largest / 2 * sigma**2) + exp3(np.sqrt(1 + largest) * sigma)
    raise InterpError(one_of("statement", statement, ("printed", "tightened")))


def theorem2_wls(conditional: Table, sigma: float) -> Rows:
    """Bound on KL_i(f_wls), true as printed, with W_U the d leading right singular vectors; inf where min pi is small.

    log(1 + ||pi||_inf sigma^2 / 2) + exp3(sqrt(max pi / min pi) sigma). The paper's remark after the theorem
    recommends f_wls if min pi is near zero, which contradicts this bound: it should say f_ls.
    Source: Dana 2024, Theorem 2; erratum 14.
    """
    largest, least = conditional.max(axis=1), conditional.min(axis=1)
    with np.errstate(divide="ignore"):
        return np.log1p(largest / 2 * sigma**2) + exp3(np.sqrt(largest / least) * sigma)


def residual_bound(conditional: Table, logits: Table) -> Rows:
    """KL_i <= ||f_i - log pi_i||^2 / 4, centered uniformly (the shift that makes it least). Any map (erratum 14)."""
    residual = logits - np.log(conditional)
    residual = residual - residual.mean(axis=1, keepdims=True)
    return (residual**2).sum(axis=1) / 4


def sigma_bound(sigma: float) -> float:
    """KL_i(f_ls) <= sigma_{d+1}^2 / 4 for every context: log-sum-exp is 1/2-smooth. No min pi in it (erratum 14)."""
    return sigma**2 / 4


def tail_bound(values: Float[np.ndarray, " values"], d: int) -> float:
    """d_KL(f_ls) <= sum_{j > d} sigma_j^2 / 4, for sigma of sqrt(prior) times the table and its W_U (erratum 14)."""
    return float((values[d:] ** 2).sum() / 4)


def range_bound(conditional: Table, logits: Table) -> Rows:
    """KL_i <= (max fbar - min fbar)^2 / 8, by Hoeffding's lemma. Any map (erratum 14)."""
    fbar = centered_residual(conditional, logits)
    return (fbar.max(axis=1) - fbar.min(axis=1)) ** 2 / 8


def bennett_bound(conditional: Table, sigma: float) -> Rows:
    """KL_i(f_ls) <= log(1 + q (e^b - 1 - b) / (1 + q)), q = ||pi_i||_inf, b = sigma sqrt(1 + q) (erratum 14)."""
    largest = conditional.max(axis=1)
    b = sigma * np.sqrt(1 + largest)
    with np.errstate(over="ignore"):
        return np.log1p(largest * (np.expm1(b) - b) / (1 + largest))


def a_posteriori_bound(conditional: Table, logits: Table) -> Rows:
    """KL_i <= log(1 + Var(fbar) / 2) + E_{o ~ pi_i} exp3|fbar|: Lemma 1, row by row. Any map (errata 12, 14)."""
    fbar = centered_residual(conditional, logits)
    with np.errstate(over="ignore"):
        return np.log1p((conditional * fbar**2).sum(axis=1) / 2) + (conditional * exp3(np.abs(fbar))).sum(axis=1)


def bounds_table(table: Any, d: int, *, prior: Any = None, centering: str = "uniform") -> pd.DataFrame:
    """Compare all bounds on one table and width: columns bound, map, kl, value, ratio (value / kl), holds, assumptions.

    `holds` is about this table only. The tests show which statements are false in general.
    """
    checked = as_table(table, prior)
    if checked.has_zeros:
        raise InterpError("the table has zeros, but the bounds need full support")
    p, weights = checked.conditional, checked.prior
    floor = 1e-300  # the bounds are about log pi itself, not a clipped one
    ls = least_squares(checked, d, centering=centering, floor=floor)
    wls = weighted_least_squares(checked, W_U=ls.W_U, floor=floor)
    prior_ls = least_squares(checked, d, centering=centering, sqrt_prior=True, floor=floor)
    values = singular_values(checked, centering, floor=floor)
    sigma = float(values[d]) if d < len(values) else 0.0
    weighted = singular_values(checked, centering, sqrt_prior=True, floor=floor)
    any_map, least = "any map; full support", "f_ls, sigma and W_U of one centering; full support"
    entries: list[tuple[str, str, float, Callable[[], Any], str]] = [
        ("theorem 2, printed", "f_ls", ls.kl, lambda: theorem2_ls(p, sigma), least + "; N >= 2"),
        ("theorem 2, tightened", "f_ls", ls.kl, lambda: theorem2_ls(p, sigma, statement="tightened"), least),
        ("theorem 2, printed", "f_wls", wls.kl, lambda: theorem2_wls(p, sigma), "W_U of f_ls; full support"),
        ("sigma^2 / 4", "f_ls", ls.kl, lambda: np.full(len(p), sigma_bound(sigma)), least),
        ("Bennett", "f_ls", ls.kl, lambda: bennett_bound(p, sigma), least),
        ("residual^2 / 4", "f_ls", ls.kl, lambda: residual_bound(p, ls.logits), any_map),
        ("residual^2 / 4", "f_wls", wls.kl, lambda: residual_bound(p, wls.logits), any_map),
        ("range^2 / 8", "f_ls", ls.kl, lambda: range_bound(p, ls.logits), any_map),
        ("range^2 / 8", "f_wls", wls.kl, lambda: range_bound(p, wls.logits), any_map),
        ("a posteriori", "f_ls", ls.kl, lambda: a_posteriori_bound(p, ls.logits), any_map),
        ("a posteriori", "f_wls", wls.kl, lambda: a_posteriori_bound(p, wls.logits), any_map),
        (
            "sum of tail / 4",
            "f_ls, sqrt(prior)",
            prior_ls.kl,
            lambda: np.full(len(p), tail_bound(weighted, d)),
            "W_U and singular values of sqrt(prior) times the table",
        ),
    ]
    rows = []
    for name, which, kl, bound, assumptions in entries:
        value = float(weights @ bound())
        holds = kl <= value * (1 + 1e-9) + 1e-13
        rows.append((name, which, kl, value, value / kl if kl > 0 else np.inf, holds, assumptions))
    return pd.DataFrame(rows, columns=["bound", "map", "kl", "value", "ratio", "holds", "assumptions"])
