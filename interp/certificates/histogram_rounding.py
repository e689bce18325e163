"""How far can rounding move a logit difference of a one-layer histogram model? A bound over all T^L sequences.

Every sum of n products, in whatever order, with or without fused operations, has an error of at most
gamma_n = n u / (1 - n u) times the sum of the products' sizes (Higham 2002, section 3.1), u the unit roundoff. The
bound follows the forward pass: queries and keys, scores, pattern, mixing, residual, hidden neurons, logits; at each
step the sizes are the largest that any sequence with the given own token and count reaches.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from interp.architecture.task_model import TaskModel
from interp.certificates.histogram_tables import Tables, arrays

ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""Unit roundoff of the formats for which there is a bound; half formats mix precisions inside fused kernels."""

EXP_ULPS = 64
"""Generous bound on the error of an exponential in units in the last place; vector versions stay below 32."""


def gamma(n: int, u: float) -> float:
    return n * u / (1 - n * u)


def rounding_bound(
    model: TaskModel, tables: Tables, highest: Float[np.ndarray, "T L p"], dtype: torch.dtype, extra: int = 0
) -> Float[np.ndarray, "T L n_out"]:
    """Bound on the error of each logit difference (right class against class j), by own token and count.

    highest: the largest pre-activations, by own token and count. extra: further terms that a sum may have in another
    order of evaluation, such as all neurons' terms where directions are taken first. Infinite for a format without a
    bound, and where the format could overflow.
    """
    if dtype not in ROUNDOFF:
        return np.full((tables.T, tables.L, tables.lead.shape[1]), np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends as an infinite bound
        return _bound(model, tables, highest, ROUNDOFF[dtype], torch.finfo(dtype), extra)


def _bound(
    model: TaskModel, tables: Tables, highest: np.ndarray, u: float, limits: torch.finfo, extra: int
) -> Float[np.ndarray, "T L n_out"]:
    a = {name: np.abs(array) for name, array in arrays(model).items()}
    embedding, w_in, w_out = a["W_E"], a["W_in"], a["W_out"]
    d, p = w_in.shape
    keys = tables.L + tables.bos
    reach = embedding @ w_in  # size that one token's value can have in a neuron's sum
    sums, errors = _mixing(tables, a, reach, u)
    own = (reach[: tables.T] + a["b_in"])[:, None]
    hidden_error = errors * (1 + gamma(2 * keys, u)) + gamma(keys + d + 8 + extra, u) * (own + sums + errors)
    hidden_error += (keys + d + 8) * float(limits.tiny) * (1 + w_in.sum(0).max() + reach.max())
    active = np.maximum(highest, 0) + hidden_error
    through = np.einsum("tkp,kjp->tkj", hidden_error, np.abs(tables.lead))
    last = active @ w_out + a["b_out"]  # (T, L, n_out)
    right = np.take_along_axis(last, tables.classes[None, :, None], axis=2)
    bound = through + gamma(p + 4, u) * (last + right) + (p + 4) * float(limits.tiny)
    mixed = keys * embedding.max() * (1 if tables.scores is None else 1 + np.abs(tables.scores).max())
    inside = 1.0 if tables.scores is None else d**3 * embedding.max() ** 2 * a["W_Q"].max() * a["W_K"].max()
    biggest = max(float((own + sums + errors).max()), float(last.max()), float(mixed), float(inside))
    safe = np.isfinite(bound) & (biggest < float(limits.max) / 16)
    return np.where(safe, bound, np.inf)


def _mixing(tables: Tables, a: dict[str, np.ndarray], reach: np.ndarray, u: float) -> tuple[np.ndarray, np.ndarray]:
    """Size of the mixed value in every neuron's sum, and the part of its error that the pattern brings: (T, L, p)."""
    T, L, keys = tables.T, tables.L, tables.L + tables.bos
    if tables.pattern is not None:
        relative = 0.0
        if tables.softmax:
            relative = _softmax_error(4 * u * float(a["W_mix"].max()), keys, u)
        total = np.abs(tables.pattern).sum(1).max() * reach[:T].max(0)
        sums = np.broadcast_to(total, (T, L, reach.shape[1]))
        return sums, relative * sums
    assert tables.scores is not None
    queries, keys_size = a["W_E"][:T] @ a["W_Q"] + a["b_Q"], a["W_E"] @ a["W_K"] + a["b_K"]
    sizes = queries @ keys_size.T / a["attn_scale"]
    score_error = gamma(2 * a["W_Q"].shape[0] + a["W_Q"].shape[1] + 8, u) * sizes
    if tables.softmax:
        scores = np.abs(tables.scores) + score_error
        slip = score_error.max(1) + 2 * u * scores.max(1)
        relative_t = np.array([_softmax_error(float(s), keys, u) for s in slip])
        sums = np.broadcast_to(reach.max(0), (T, L, reach.shape[1]))
        return sums, relative_t[:, None, None] * sums
    return tuple(  # type: ignore[return-value]
        _over_slots(tables, weights, reach) for weights in (np.abs(tables.scores) + score_error, score_error)
    )


def _over_slots(tables: Tables, weights: np.ndarray, reach: np.ndarray) -> Float[np.ndarray, "T L p"]:
    """The largest sum of weights * reach: k own tokens, the worst other one L - k times, and [BOS]."""
    T, L = tables.T, tables.L
    each = weights[:, :T, None] * reach[None, :T]
    own = each[np.arange(T), np.arange(T)]
    k = np.arange(1, L + 1)[None, :, None]
    total = k * own[:, None] + (L - k) * each.max(1)[:, None]
    return total + (weights[:, T, None] * reach[T])[:, None] if tables.bos else total


def _softmax_error(slip: float, keys: int, u: float) -> float:
    """Relative error of a softmax weight where scores less their maximum are off by `slip` at most."""
    rescalings = 2 + keys // 32  # fused kernels rescale for every block of keys
    return float(np.expm1(2 * slip + 2 * EXP_ULPS * u * rescalings + gamma(2 * keys + 8, u)))
