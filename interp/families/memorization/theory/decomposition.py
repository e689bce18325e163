"""Decomposition of a map from contexts to logits: heads that add up, and directions compared with the log table's."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.errors import InterpError
from interp.families.memorization.theory.closed_forms import checked_unembedding
from interp.families.memorization.theory.kl import accuracy, checked_logits, kl_divergence
from interp.families.memorization.theory.spectrum import centered_log_table, subspace_angles
from interp.families.memorization.theory.table import as_table


def head_contributions(table: Any, rest: Any, heads: Any, *, prior: Any = None) -> pd.DataFrame:
    """Measure how much each head of an additive model matters, over the whole table.

    rest (contexts, outputs): logits without any head; heads (heads, contexts, outputs): what each head adds.
    Columns: head; kl_without and accuracy_without (all but this head); kl_increase over the whole model, nats;
    kl_alone (rest and this head only); rms (of its logits, centered over outputs, prior-weighted).
    """
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
    """
    checked = as_table(table, prior)
    learned = checked_unembedding(W_U, checked.n_outputs)
    centered = np.sqrt(checked.prior)[:, None] * centered_log_table(checked, floor=floor)
    _, values, directions = np.linalg.svd(centered, full_matrices=False)
    directions, values = directions[values > 1e-12 * values[0]], values[values > 1e-12 * values[0]]
    angles = subspace_angles(learned, directions[: len(learned)])
    return pd.DataFrame(
        {
            "direction": np.arange(1, len(values) + 1),
            "singular_value": values,
            "energy": values**2 / (values**2).sum(),
            "expressed": _inside(learned, directions),
            "angle": np.pad(angles, (0, len(values) - len(angles)), constant_values=np.nan),
        }
    )


def _inside(
    learned: Float[np.ndarray, "d outputs"], directions: Float[np.ndarray, "n outputs"]
) -> Float[np.ndarray, " n"]:
    """Squared length of each unit vector's projection on the centered row space of `learned`."""
    _, values, basis = np.linalg.svd(learned - learned.mean(axis=1, keepdims=True), full_matrices=False)
    basis = basis[values > 1e-12 * max(values[0], 1e-300)]
    return ((directions @ basis.T) ** 2).sum(axis=1)
