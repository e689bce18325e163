"""Bound the effect of rounding on the logit differences of a one-layer histogram model, over all T^L sequences.

Every sum of n products, in any order, with or without fused operations, has an error of at most
gamma_n = n u / (1 - n u) times the sum of the products' absolute values (Higham 2002, section 3.1), where u is the unit
roundoff. The bound follows the forward pass: queries and keys, scores, pattern, mixing, residual, hidden neurons,
logits. At each step, the sizes are the largest that any sequence with the given own token and count reaches.
"""

import numpy as np
import torch
from jaxtyping import Float

from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, Tracked, exact, gamma, limits
from interp.families.histogram.certificates.tables import Tables, arrays


def rounding_bound(
    model: TaskModel, tables: Tables, highest: Float[np.ndarray, "T L p"], dtype: torch.dtype, extra: int = 0
) -> Float[np.ndarray, "T L n_out"]:
    """Bound on the error of each logit difference (right class against class j), by own token and count.

    highest: the largest pre-activations, by own token and count. extra: further terms that a sum may have in another
    order of evaluation, such as all neurons' terms if directions are evaluated first. The bound is infinite for an
    unsupported format, and where the format could overflow.
    """
    if dtype not in ROUNDOFF:
        return np.full((tables.T, tables.L, tables.lead.shape[1]), np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite give infinite bounds
        return _bound(model, tables, highest, ROUNDOFF[dtype], limits(dtype), extra)


def _bound(
    model: TaskModel, tables: Tables, highest: np.ndarray, u: float, limits: tuple[float, float], extra: int
) -> Float[np.ndarray, "T L n_out"]:
    plain = arrays(model)
    a, (smallest, largest) = {name: np.abs(array) for name, array in plain.items()}, limits
    embedding, w_in, w_out = a["W_E"], a["W_in"], a["W_out"]  # of every token, including those outside the alphabet
    d, p = w_in.shape
    keys = tables.L + tables.bos
    reach = embedding[tables.ids] @ w_in  # size that one token's value can have in a neuron's sum
    sums, errors, weight = _mixing(tables, plain, reach, u)
    own = (reach[: tables.T] + a["b_in"])[:, None]
    hidden_error = errors * (1 + gamma(2 * keys, u)) + gamma(keys + d + 8 + extra, u) * (own + sums + errors)
    # Underflow: of weights, of weights times values, and of values times neurons, before or after they are mixed.
    hidden_error += keys * smallest * reach.max()
    hidden_error += smallest * ((keys + 8) * (1 + w_in.sum(0)) + (d + 8) * (1 + weight))
    active = np.maximum(highest, 0) + hidden_error
    through = np.einsum("tkp,kjp->tkj", hidden_error, np.abs(tables.lead))
    last = active @ w_out + a["b_out"]  # (T, L, n_out)
    right = np.take_along_axis(last, tables.classes[None, :, None], axis=2)
    bound = through + gamma(p + 4, u) * (last + right) + (p + 4) * smallest
    mixed = keys * embedding.max() * (1 if tables.scores is None else 1 + np.abs(tables.scores).max())
    inside = 1.0 if tables.scores is None else d**3 * embedding.max() ** 2 * a["W_Q"].max() * a["W_K"].max()
    biggest = max(float((own + sums + errors).max()), float(last.max()), float(mixed), float(inside))
    safe = np.isfinite(bound) & (biggest < largest)
    return np.where(safe, bound, np.inf)


def _mixing(
    tables: Tables, a: dict[str, np.ndarray], reach: np.ndarray, u: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the mixed value's size in every neuron's sum and its error from the pattern, both (T, L, p), and the
    largest sum of a row of the pattern."""
    T, L, keys = tables.T, tables.L, tables.L + tables.bos
    numbers = Arithmetic(u)
    if tables.pattern is not None:
        relative = 0.0
        if tables.softmax:  # for numbers that are known exactly
            spread = torch.tensor(2 * float(np.abs(a["W_mix"]).max()))
            relative = float(numbers.weight_error(torch.zeros(()), spread, keys))
        weight = float(np.abs(tables.pattern).sum(1).max())
        sums = np.broadcast_to(weight * reach[:T].max(0), (T, L, reach.shape[1]))
        return sums, relative * sums, weight
    scores = _scores(numbers, tables, a)
    if tables.softmax:
        spread = scores.value.amax(1) - scores.value.amin(1)
        relative_t = numbers.weight_error(scores.error.amax(1), spread, keys).numpy()
        sums = np.broadcast_to(reach.max(0), (T, L, reach.shape[1]))
        return sums, relative_t[:, None, None] * sums, 1.0
    sums, errors = (_over_slots(tables, weights.numpy(), reach) for weights in (scores.size, scores.error))
    return sums, errors, float(scores.size.max()) * keys


def _scores(numbers: Arithmetic, tables: Tables, a: dict[str, np.ndarray]) -> Tracked:
    """Compute the attention scores, indexed by own token and key token."""
    t = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in a.items()}
    q = numbers.linear(exact(t["W_E"][tables.ids[: tables.T]]), t["W_Q"], t["b_Q"])
    k = numbers.linear(exact(t["W_E"][tables.ids]), t["W_K"], t["b_K"])
    return numbers.scores(q, k, 1 / float(a["attn_scale"]))


def _over_slots(tables: Tables, weights: np.ndarray, reach: np.ndarray) -> Float[np.ndarray, "T L p"]:
    """Return the largest sum of weights * reach: k own tokens, the worst other one L - k times, and [BOS]."""
    T, L = tables.T, tables.L
    each = weights[:, :T, None] * reach[None, :T]
    own = each[np.arange(T), np.arange(T)]
    k = np.arange(1, L + 1)[None, :, None]
    total = k * own[:, None] + (L - k) * each.max(1)[:, None]
    return total + (weights[:, T, None] * reach[T])[:, None] if tables.bos else total
