"""Corollary 1: closed forms where the singular vectors are single outputs, as printed and as corrected.

S is the set of the d outputs that are kept. pi-centering is needed: with uniform centering no instance exists, since
the rows of the centered table then sum to zero. Source: Dana 2024, Corollary 1; erratum 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.errors import InterpError, one_of
from interp.families.memorization.theory.kl import entropy_rows

Rows = Float[np.ndarray, " contexts"]
Table = Float[np.ndarray, "contexts outputs"]


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """Logits (contexts, outputs) and the divergence of every row in nats, as the formula states them."""

    logits: Table
    kl_by_row: Rows


def corollary1_wls(conditional: Table, kept: Sequence[int], *, statement: str = "corrected") -> ClosedForm:
    """f_wls: log pi on S; off S a constant.

    With Hbar = sum_{S^c} pi log pi / pi(S^c), the print's own "H(pi, S^c)":
    corrected   constant Hbar, divergence log(pi(S) + (M - d) e^Hbar)
    printed     constant Hbar + log pi(S^c), divergence log(pi(S) + pi(S^c) (M - d) e^Hbar): up to 0.39 nats off
    renamed     the printed formulas with H(pi, S) = sum_S (pi / pi(S)) log(pi / pi(S)): equal to the corrected ones
    """
    p, inside, mass, rest, mean = _parts(conditional, kept)
    outputs = (~inside).sum()
    if statement == "corrected":
        constant, kl = mean, np.log(mass + outputs * np.exp(mean))
    elif statement in ("printed", "renamed"):
        H = mean if statement == "printed" else mean - np.log(rest)
        constant, kl = H + np.log(rest), np.log(mass + rest * outputs * np.exp(H))
    else:
        raise InterpError(one_of("statement", statement, ("corrected", "printed", "renamed")))
    return ClosedForm(np.where(inside, np.log(p), constant[:, None]), kl)


def corollary1_ls(conditional: Table, kept: Sequence[int], *, statement: str = "corrected") -> ClosedForm:
    """f_ls: log pi on S; off S the constant -H(pi_i), the mean of log pi over all outputs (printed: +H).

    corrected   divergence log(pi(S) + (M - d) e^-H) + pi(S^c) (H + Hbar)
    printed     the first term only (its sign mended): up to 0.32 nats off, and it can be negative
    """
    p, inside, mass, rest, mean = _parts(conditional, kept)
    H = entropy_rows(p)
    kl = np.log(mass + (~inside).sum() * np.exp(-H))
    if statement == "corrected":
        kl = kl + rest * (H + mean)
    elif statement != "printed":
        raise InterpError(one_of("statement", statement, ("corrected", "printed")))
    return ClosedForm(np.where(inside, np.log(p), -H[:, None]), kl)


def corollary1_optimum(conditional: Table, kept: Sequence[int]) -> ClosedForm:
    """The best map of that W_U: off S the constant log(pi(S^c) / (M - d)), never above f_wls or f_ls."""
    p, inside, _, rest, mean = _parts(conditional, kept)
    constant = np.log(rest / (~inside).sum())
    return ClosedForm(np.where(inside, np.log(p), constant[:, None]), rest * (mean - constant))


def corollary1_instance(n_contexts: int, n_outputs: int, seed: int | np.random.Generator = 0) -> Table:
    """A random table to which Corollary 1 applies: the pi-centered log table has orthogonal columns.

    Solves x_o . x_o' = 0 for o != o' and sum_o x_io exp(x_io) = 0 for the centered logs x by Gauss-Newton; then
    pi_i = softmax(x_i). Needs n_contexts >= n_outputs. Residual below 1e-12.
    """
    if n_contexts < n_outputs or n_outputs < 2:
        raise InterpError(
            f"{n_contexts} contexts and {n_outputs} outputs: orthogonal columns need contexts >= outputs >= 2"
        )
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n_outputs, 1)
    for _ in range(50):
        # Orthogonal columns make the rows' sums as large as their norms, so small or symmetric x cannot be a solution.
        p = np.maximum(rng.dirichlet(np.full(n_outputs, rng.uniform(0.3, 1.5)), size=n_contexts), 1e-4)
        x = np.log(p) - (p * np.log(p)).sum(axis=1, keepdims=True) / p.sum(axis=1, keepdims=True)
        for _ in range(60):
            gram = x.T @ x
            errors = np.concatenate([gram[first, second], (x * np.exp(x)).sum(axis=1)])
            if np.abs(errors).max() < 1e-13 * n_contexts:
                break
            jacobian = np.zeros((len(errors), n_contexts, n_outputs))
            pair = np.arange(len(first))
            jacobian[pair, :, first] += x[:, second].T
            jacobian[pair, :, second] += x[:, first].T
            row = np.arange(n_contexts)
            jacobian[len(first) + row, row] = (1 + x) * np.exp(x)
            step = np.linalg.lstsq(jacobian.reshape(len(errors), -1), errors, rcond=None)[0].reshape(x.shape)
            x = x - step * min(1.0, 1.0 / np.abs(step).max())
        if np.abs(errors).max() < 1e-12 and (np.sqrt((x**2).sum(axis=0)) > 0.1).all():
            p = np.exp(x)
            return p / p.sum(axis=1, keepdims=True)
    raise InterpError(f"no instance with {n_contexts} contexts and {n_outputs} outputs was found in 50 tries")


def _parts(conditional: Table, kept: Sequence[int]) -> tuple[Table, np.ndarray, Rows, Rows, Rows]:
    """pi, the mask of S, pi(S), pi(S^c) and Hbar(S^c)."""
    m = conditional.shape[1]
    inside = np.zeros(m, dtype=bool)
    inside[list(kept)] = True
    if inside.sum() != len(kept) or not 0 < len(kept) < m:
        raise InterpError(f"kept is {list(kept)}; different outputs, at least one and not all {m}, are needed")
    rest = conditional[:, ~inside].sum(axis=1)
    mean = (conditional * np.log(conditional))[:, ~inside].sum(axis=1) / rest
    return conditional, inside, conditional[:, inside].sum(axis=1), rest, mean
