"""The centered log table: its singular values give the rank needed, its singular vectors the directions to learn.

A model's logits are compared with it: what each head adds, and which directions the unembedding can express.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.errors import InterpError, check_one_of
from interp.families.memorization.theory.kl import accuracy, checked_logits, checked_unembedding, kl_divergence
from interp.families.memorization.theory.table import ConditionalTable, as_table

if TYPE_CHECKING:
    import pandas as pd

CENTERINGS = ("uniform", "marginal", "pi")


def centered_log_table(
    table: Any, centering: str = "uniform", *, prior: Any = None, floor: float = 1e-12
) -> Float[np.ndarray, "contexts outputs"]:
    """Return log pi minus each row's mean over outputs. This changes the rank, but not the softmax.

    centering   uniform: weights 1 / M (the default); marginal: the output marginal sum_i prior_i pi_i;
                pi: the row's own pi_i, the meaning of E_{t_o} in Dana 2024, Lemma 1
    Weights that do not depend on the row give the least rank; pi-centering can need one more (erratum 11).
    """
    checked = as_table(table, prior)
    logs = checked.log_conditional(floor)
    return logs - (_weights(checked, centering) * logs).sum(axis=1, keepdims=True)


def singular_values(
    table: Any, centering: str = "uniform", *, prior: Any = None, sqrt_prior: bool = False, floor: float = 1e-12
) -> Float[np.ndarray, " values"]:
    """Singular values of the centered log table, largest first; of sqrt(prior) times it if asked."""
    checked = as_table(table, prior)
    centered = centered_log_table(checked, centering, floor=floor)
    if sqrt_prior:
        centered = np.sqrt(checked.prior)[:, None] * centered
    return np.linalg.svd(centered, compute_uv=False)


def zero_divergence_rank(table: Any, centering: str = "uniform", *, tolerance: float = 1e-10) -> int:
    """Return the least d with divergence zero: rank(log(pi) J), J = I - 11^T / M; at most min(N, M - 1).

    The paper prints rank(L - E_{t_o}[L]), which can be one too high with pi-centering (centering="pi" returns that
    number). Raises InterpError for a table with zeros: the divergence is then zero only in the limit.
    Source: Dana 2024, section 4; erratum 11.
    """
    checked = as_table(table)
    if checked.has_zeros:
        raise InterpError("the table has zeros, so no finite logits give zero divergence; the rank is not defined")
    values = np.linalg.svd(centered_log_table(checked, centering, floor=1e-300), compute_uv=False)
    return int((values > tolerance * max(values[0], 1.0)).sum())


def top_directions(centered: Float[np.ndarray, "contexts outputs"], d: int) -> Float[np.ndarray, "d outputs"]:
    """Return the d leading right singular vectors as orthonormal rows. d is at most min(contexts, outputs)."""
    if not 1 <= d <= min(centered.shape):
        raise InterpError(f"d is {d}; between 1 and min(contexts, outputs) = {min(centered.shape)} is needed")
    return np.linalg.svd(centered, full_matrices=False)[2][:d]


def subspace_angles(
    first: Float[np.ndarray, "d1 outputs"], second: Float[np.ndarray, "d2 _"]
) -> Float[np.ndarray, " angles"]:
    """Principal angles in degrees, smallest first, between two row spaces, without the all-ones direction.

    Both are centered first: a constant added to all logits changes no probability. min(rank, rank) angles.
    """
    bases = [_orthonormal_rows(block - block.mean(axis=1, keepdims=True)) for block in (first, second)]
    cosines = np.linalg.svd(bases[0] @ bases[1].T, compute_uv=False)
    small = bases[0] if len(bases[0]) <= len(bases[1]) else bases[1]
    large = bases[1] if small is bases[0] else bases[0]
    sines = np.linalg.svd(small - small @ large.T @ large, compute_uv=False)[: len(small)]
    # arccos loses half the digits of a small angle and arcsin of a large one.
    return np.degrees(np.arctan2(np.sort(sines), cosines))


def head_contributions(table: Any, rest: Any, heads: Any, *, prior: Any = None) -> pd.DataFrame:
    """Measure how much each head of an additive model matters, over the whole table.

    rest (contexts, outputs): logits without any head; heads (heads, contexts, outputs): what each head adds.
    Columns: head; kl_without and accuracy_without (all but this head); kl_increase over the whole model, nats;
    kl_alone (rest and this head only); rms (of its logits, centered over outputs, prior-weighted).
    """
    import pandas as pd

    checked = as_table(table, prior)
    base = checked_logits(checked, rest)
    parts = np.asarray(heads.detach().cpu() if hasattr(heads, "detach") else heads, dtype=np.float64)
    if parts.ndim != 3 or parts.shape[1:] != base.shape:
        raise InterpError(f"the heads' logits have shape {parts.shape}; (heads, contexts, outputs) is needed")
    whole = base + parts.sum(axis=0)
    kl = kl_divergence(checked, whole)
    rows = []
    for head, part in enumerate(parts):
        without = kl_divergence(checked, whole - part)
        centered = part - part.mean(axis=1, keepdims=True)
        rms = float(np.sqrt(checked.prior @ (centered**2).mean(axis=1)))
        right = accuracy(checked, whole - part)
        rows.append((head, without, right, without - kl, kl_divergence(checked, base + part), rms))
    columns = ["head", "kl_without", "accuracy_without", "kl_increase", "kl_alone", "rms"]
    return pd.DataFrame(rows, columns=columns)


def learned_directions(table: Any, W_U: Any, *, prior: Any = None, floor: float = 1e-12) -> pd.DataFrame:
    """Compare the directions of the log table with those that a model's unembedding can express.

    W_U (d, outputs). Columns: direction (1, 2, ...), singular_value of sqrt(prior) times the centered log table,
    energy (its share of their squared sum), expressed (the squared length of that singular vector inside the row space
    of W_U, 0 to 1) and angle (the j-th principal angle between W_U and the d leading directions, degrees; NaN beyond).
    Equal singular values have a space in common, but no directions of their own: `expressed` is their mean.
    """
    import pandas as pd

    checked = as_table(table, prior)
    learned = checked_unembedding(W_U, checked.n_outputs)
    centered = np.sqrt(checked.prior)[:, None] * centered_log_table(checked, floor=floor)
    _, values, directions = np.linalg.svd(centered, full_matrices=False)
    directions, values = directions[values > 1e-12 * values[0]], values[values > 1e-12 * values[0]]
    angles = subspace_angles(learned, directions[: len(learned)])
    inside = _orthonormal_rows(learned - learned.mean(axis=1, keepdims=True))
    expressed = pd.Series(((directions @ inside.T) ** 2).sum(axis=1))
    spaces = (np.diff(values, prepend=values[0]) < -1e-9 * values[0]).cumsum()
    return pd.DataFrame(
        {
            "direction": np.arange(1, len(values) + 1),
            "singular_value": values,
            "energy": values**2 / (values**2).sum(),
            "expressed": expressed.groupby(spaces).transform("mean"),
            "angle": np.pad(angles, (0, len(values) - len(angles)), constant_values=np.nan),
        }
    )


def _weights(table: ConditionalTable, centering: str) -> np.ndarray:
    check_one_of("centering", centering, CENTERINGS)
    if centering == "uniform":
        return np.full(table.n_outputs, 1.0 / table.n_outputs)
    return table.conditional if centering == "pi" else table.prior @ table.conditional


def _orthonormal_rows(block: np.ndarray) -> np.ndarray:
    _, values, rows = np.linalg.svd(block, full_matrices=False)
    return rows[values > 1e-12 * max(values[0], 1e-300)]
