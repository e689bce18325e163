"""The best rank-d map of a conditional table: both factors optimized together, from several starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from interp.errors import InterpError
from interp.families.memorization.theory.joint import balance, descend, gradient_norm, polish
from interp.families.memorization.theory.rank_d import RankDMap, newton_refinement, rank_d_map
from interp.families.memorization.theory.spectrum import centered_log_table
from interp.families.memorization.theory.table import ConditionalTable, as_table

if TYPE_CHECKING:
    import pandas as pd

POLISH_SIZE = 400
"""Joint Newton steps are used if outputs x d is at most this; they cost its cube."""
POLISH_ALL_SIZE = 100
"""If outputs x d is at most this, joint Newton steps polish every start, not only the winner."""
AGREEMENT = 1e-7
"""Starts whose divergences differ by less than this, in nats, count as the same minimum."""

LEAD = 30 * math.log(10)
"""Lead in nats that stands for an infinite one: an answer then has all but about 1e-30 of the probability."""


@dataclass(frozen=True, eq=False)
class RankDOptimum(RankDMap):
    """The best rank-d map found. kl, in nats, is an upper bound on the optimum, and equals the optimum if `exact`.

    method         the start that won, and the method that polished it
    restarts       DataFrame, one row per start: start, kl, iterations, gradient_norm, best (within 1e-7 of the least)
    gradient_norm  norm of the gradient in balanced factors (W_U W_U^T = W_E^T diag(prior) W_E)
    curvature      least eigenvalue of the Hessian on W_U (W_E eliminated) without symmetries; NaN if too large
    exact          whether it is proved that the optimum is zero
    attained       False if the table has zeros: the optimum is then an infimum, approached as logits grow
    evidence       the evidence for optimality, in a sentence or two
    """

    restarts: pd.DataFrame
    gradient_norm: float
    curvature: float
    exact: bool
    attained: bool
    evidence: str


def rank_d_optimum(
    table: Any,
    d: int,
    prior: Any = None,
    *,
    random_starts: int | None = None,
    seed: int = 0,
    floor: float = 1e-12,
) -> RankDOptimum:
    """Find the rank-d map W_E @ W_U of least divergence from the table, a ConditionalTable or an array with `prior`.

    L-BFGS optimizes both factors from several starts: the SVD of the log table weighted by sqrt(prior), the same SVD
    with the table clipped at 0.1 / M and 0.01 / M (for low entropy), and random starts (by default 8 for
    tables of up to 10,000 entries, otherwise none). Then Newton's method optimizes every row's embedding, and joint
    Newton steps follow if outputs x d <= 400. For d >= min(contexts, outputs - 1) the optimum is exactly zero, and
    nothing is searched; nor if each context has a single answer, and d >= 2 or there are at most two answers: these are
    then points on a circle, and zero is approached as logits grow. A positive optimum is not proved to be global:
    `restarts` and `evidence` give the evidence for it.
    Source: Dana 2024, sections 3.2 and 4 (f_W*); errata 3, 11 and table B.
    """
    checked = as_table(table, prior)
    if d < 1:
        raise InterpError(f"d is {d}; at least 1 is needed")
    likely = checked.prior > 0
    if d >= min(int(likely.sum()), checked.n_outputs - 1):
        return _zero_optimum(checked, d, likely)
    answers = np.unique(checked.conditional[likely].argmax(axis=1))
    if (checked.conditional[likely].max(axis=1) == 1).all() and len(answers) <= (2 if d == 1 else np.inf):
        return _points_on_a_circle(checked, d, likely, answers)
    rows = as_table(checked.conditional[likely], checked.prior[likely])
    if random_starts is None:
        random_starts = 8 if rows.conditional.size <= 10_000 else 0
    starts = _starts(rows, d, random_starts, np.random.default_rng(seed), floor)
    runs = [_search(rows, name, W_U, W_E) for name, W_U, W_E in starts]
    return _finish(checked, rows, likely, runs)


@dataclass(frozen=True, eq=False)
class _Descent:
    start: str
    W_U: np.ndarray
    W_E: np.ndarray
    kl: float
    iterations: int
    gradient_norm: float
    curvature: float = float("nan")


def _polished(rows: ConditionalTable, run: _Descent) -> _Descent:
    """Apply joint Newton steps to a run; the result is never worse."""
    end = polish(rows.conditional, rows.prior, run.W_U, run.W_E)
    kl = rank_d_map(rows, end.W_U, end.W_E, "").kl
    return replace(run, kl=kl, **vars(end))


def _starts(
    rows: ConditionalTable, d: int, random_starts: int, rng: np.random.Generator, floor: float
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, W_U and W_E of each start."""
    m = rows.n_outputs
    root = np.sqrt(rows.prior)[:, None]
    floors = {"svd": floor, "svd clipped at 0.01/M": 0.01 / m, "svd clipped at 0.1/M": 0.1 / m}
    smallest = rows.conditional.min()
    for name, level in floors.items():
        if name != "svd" and smallest >= level:
            continue  # nothing is clipped: the same start as before
        centered = centered_log_table(rows, floor=level)
        left, values, right = np.linalg.svd(root * centered, full_matrices=False)
        yield name, np.sqrt(values[:d])[:, None] * right[:d], left[:, :d] * np.sqrt(values[:d]) / root
    for i in range(random_starts):
        yield f"random {i}", rng.standard_normal((d, m)), rng.standard_normal((rows.n_contexts, d))


def _search(rows: ConditionalTable, start: str, W_U: np.ndarray, W_E: np.ndarray) -> _Descent:
    """Go from a start to a minimum: Newton on rows, L-BFGS on both factors, rows again, joint Newton if affordable."""
    W_E = newton_refinement(rows, W_U, start=W_E, max_steps=5).W_E
    W_U, W_E, iterations = descend(rows, W_U, W_E)
    refined = newton_refinement(rows, W_U, start=W_E, max_steps=50)
    slope = gradient_norm(rows, *balance(refined.W_U, refined.W_E, rows.prior))
    run = _Descent(start, refined.W_U, refined.W_E, refined.kl, iterations, slope)
    return _polished(rows, run) if W_U.size <= POLISH_ALL_SIZE else run


def _finish(
    checked: ConditionalTable, rows: ConditionalTable, likely: np.ndarray, runs: list[_Descent]
) -> RankDOptimum:
    import pandas as pd

    winner = min(runs, key=lambda run: run.kl)
    agree = [run.kl - winner.kl <= AGREEMENT for run in runs]
    if POLISH_ALL_SIZE < winner.W_U.size <= POLISH_SIZE:
        winner = _polished(rows, winner)
    W_U, W_E, curvature = winner.W_U, winner.W_E, winner.curvature
    method = f"{winner.start}, L-BFGS, Newton" + (" on the rows" if W_U.size > POLISH_SIZE else "")
    everywhere = np.zeros((checked.n_contexts, len(W_U)))
    everywhere[likely] = W_E
    if not likely.all():
        rest = as_table(checked.conditional[~likely])
        everywhere[~likely] = newton_refinement(rest, W_U).W_E
    best_map = rank_d_map(checked, W_U, everywhere, method)
    restarts = pd.DataFrame(
        [(run.start, run.kl, run.iterations, run.gradient_norm, best) for run, best in zip(runs, agree)],
        columns=["start", "kl", "iterations", "gradient_norm", "best"],
    )
    evidence = (
        f"{int(restarts.best.sum())} of {len(restarts)} starts reach this minimum (within {AGREEMENT:g} nats); "
        f"gradient norm {winner.gradient_norm:.1e}"
    )
    if np.isfinite(curvature):
        evidence += f"; least curvature {curvature:.1e}" + (
            " (a strict local minimum up to symmetries)" if curvature > 1e-9 else ""
        )
    evidence += "; each row's embedding is globally optimal for this W_U; not certified as the global optimum"
    if checked.has_zeros:
        evidence += "; the table has zeros, so the optimum may be an infimum that no finite map attains"
    return RankDOptimum(
        **vars(best_map),
        restarts=restarts,
        gradient_norm=winner.gradient_norm,
        curvature=curvature,
        exact=False,
        attained=not checked.has_zeros,
        evidence=evidence,
    )


def _points_on_a_circle(
    checked: ConditionalTable, d: int, likely: np.ndarray, answers: Int[np.ndarray, " answers"]
) -> RankDOptimum:
    """Give each answer a point on a circle, and each context that of its answer; other outputs are in the center."""
    angles = [2 * math.pi * place / len(answers) for place in range(len(answers))]
    points = np.array([[math.cos(angle), math.sin(angle)] for angle in angles])[:, :d]
    nearest = min(1.0, 1 - math.cos(2 * math.pi / max(2, len(answers))))  # what the answer leads by on a unit circle
    points *= math.sqrt(LEAD / nearest)
    W_U, W_E = np.zeros((d, checked.n_outputs)), np.zeros((checked.n_contexts, d))
    W_U[: points.shape[1], answers] = points.T
    W_E[likely] = W_U.T[checked.conditional[likely].argmax(axis=1)]
    if not likely.all():
        W_E[~likely] = newton_refinement(as_table(checked.conditional[~likely]), W_U).W_E
    best = rank_d_map(checked, W_U, W_E, "points on a circle")
    return _zero(
        best,
        f"zero in the limit: each context has a single answer, and answers that are points on a circle are told apart "
        f"in d = {d} (float64 gives {best.kl:.1e}); no search is needed; zero is the infimum, and these logits give "
        f"the answer a lead of {LEAD:.0f} nats",
        attained=False,
    )


def _zero_optimum(checked: ConditionalTable, d: int, likely: np.ndarray) -> RankDOptimum:
    """Represent log pi up to a constant per row: one coordinate per output (against the last), or per context."""
    n, m = int(likely.sum()), checked.n_outputs
    logs = checked.log_conditional(floor=1e-30)
    W_U, W_E = np.zeros((d, m)), np.zeros((checked.n_contexts, d))
    if m - 1 <= n:
        W_U[: m - 1, : m - 1] = np.eye(m - 1)
        W_E[:, : m - 1] = logs[:, :-1] - logs[:, -1:]
        needed = f"outputs - 1 = {m - 1}"
    else:
        W_U[:n] = logs[likely]
        W_E[np.flatnonzero(likely), np.arange(n)] = 1.0
        needed = f"contexts{'' if likely.all() else ' of positive prior'} = {n}"
    best = rank_d_map(checked, W_U, W_E, "rank condition")
    attained = not checked.has_zeros
    evidence = (
        f"zero exactly: d = {d} is at least {needed}, so log pi itself, up to a constant in each row, has rank d "
        f"(float64 gives {best.kl:.1e}); no search is needed, and a larger d gains nothing"
    )
    if not attained:
        evidence += "; the table has zeros, so zero is the infimum and these logits put 1e-30 in their place"
    return _zero(best, evidence, attained)


def _zero(best: RankDMap, evidence: str, attained: bool) -> RankDOptimum:
    """Build the optimum of a table that is known to have the optimum zero."""
    import pandas as pd

    return RankDOptimum(
        **{**vars(best), "kl": 0.0},
        restarts=pd.DataFrame(columns=["start", "kl", "iterations", "gradient_norm", "best"]),
        gradient_norm=0.0,
        curvature=float("nan"),
        exact=True,
        attained=attained,
        evidence=evidence,
    )
