"""Tables over tokens, in float64, for the inputs of the readout's neurons in a one-layer model that counts tokens.

`rounding_bound` bounds the effect of rounding on the model's logit differences, over all T^L sequences. Every sum of n
products, in any order, with or without fused operations, has an error of at most gamma_n = n u / (1 - n u) times the
sum of the products' absolute values (Higham 2002, section 3.1), where u is the unit roundoff. The bound follows the
forward pass: queries and keys, scores, pattern, mixing, residual, hidden neurons, logits. At each step, the sizes are
the largest that any sequence with the given own token and count reaches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, exact, gamma, limits
from interp.certificates.certificate import anything
from interp.certificates.rounding import projected
from interp.errors import UnsupportedError
from interp.families.histogram.occurrences import declared
from interp.models.architecture.task_model import TaskModel
from interp.tasks.structure import compare

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "max_length", "readout_width", "n_out"),
    **anything("layers.d_head", "layers.scale", "layers.query_key"),
    **anything("layers.bias.q", "layers.bias.k"),
    "layers": (1,),
    "layers.mixing": ("linear",),
    "layers.normalizer": ("none",),
    "layers.value_output": ("identity",),
    "direction": ("bidirectional",),
    "readout": ("relu_mlp",),
}


def refusal(model: TaskModel) -> str | None:
    """Return the reason why the method does not apply to this model, or None; TAKES has what else it supports."""
    spec, task = model.spec, model.task
    try:
        compare(task, [shape := declared(task)])
    except UnsupportedError as error:
        return str(error)
    layer = spec.layers[0]
    if spec.symmetry not in ("distinct_tokens", "slots"):
        return (
            f"equal tokens must have equal rows: positions are {spec.positions!r} and attention is {spec.direction}, "
            f"so outputs depend on more than that (symmetry {spec.symmetry!r})"
        )
    if spec.readout != "relu_mlp" or spec.readout_at != "all":
        return f"the method needs a ReLU readout at all positions, not {spec.readout!r} at {spec.readout_at!r}"
    if layer.value_output != "identity":
        return f"the method needs values and outputs to be the identity, not {layer.value_output!r}"
    outputs = spec.n_out or task.n_out
    if outputs <= max(shape.classes):
        return f"{outputs} outputs do not have a class for each count up to {shape.length}"
    if layer.mixing == "linear" and (spec.max_length != shape.length or shape.marks):
        return (f"the mixing matrix is for rows of length {spec.max_length} without a mark, the task's have "
                f"{len(shape.marks)} marks and length {shape.length}")  # fmt: skip
    return None


@dataclass(frozen=True)
class Tables:
    """Input of neuron i at a position with token t: own[t, i] + sum_m A_m value[x_m, i], over the L slots and [BOS].

    A token is given by its index in the task's alphabet of size T. The task's mark, if it has one (`bos`), is called
    [BOS] here and comes last. `ids` are the token ids in the vocabulary. The attention weights A come from `scores`
    (own token by other token), with a softmax or without, or are the fixed `pattern` of linear mixing. `own` contains
    the contributions of the residual stream and of b_in. `classes[k - 1]` is the right class for count k,
    lead[k - 1, j] = W_out[:, right] - W_out[:, j], and lead_bias is the same for b_out.
    """

    ids: Int[np.ndarray, " rows"]
    T: int
    L: int
    own: Float[np.ndarray, "T p"]
    value: Float[np.ndarray, "rows p"]
    scores: Float[np.ndarray, "T rows"] | None
    pattern: Float[np.ndarray, "L L"] | None
    softmax: bool
    bos: bool
    classes: Int[np.ndarray, " L"]
    lead: Float[np.ndarray, "L n_out p"]
    lead_bias: Float[np.ndarray, "L n_out"]

    def hidden(self, sequences: Int[np.ndarray, "rows L"]) -> Float[np.ndarray, "rows L p"]:
        """Return the pre-activations at every position of sequences over the alphabet (without [BOS])."""
        if self.pattern is not None:
            return self.own[sequences] + np.einsum("lm,rmp->rlp", self.pattern, self.value[sequences])
        assert self.scores is not None
        keys = np.pad(sequences, ((0, 0), (0, 1)), constant_values=self.T) if self.bos else sequences
        weights = self.scores[sequences[:, :, None], keys[:, None, :]]
        if self.softmax:
            weights = np.exp(weights - weights.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
        return self.own[sequences] + weights @ self.value[keys]

    def margins(self, sequences: Int[np.ndarray, "rows L"]) -> Float[np.ndarray, "rows L"]:
        """Return the right class's logit minus the largest other logit, at every position."""
        counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
        active = np.maximum(self.hidden(sequences), 0)
        out = np.empty(sequences.shape)
        for k in range(1, self.L + 1):
            here = counts == k
            leads = active[here] @ self.lead[k - 1].T + self.lead_bias[k - 1]
            leads[:, self.classes[k - 1]] = np.inf
            out[here] = leads.min(1)
        return out


def tables_of(model: TaskModel) -> Tables:
    """Return the tables of a model to which the method applies."""
    shape, layer = declared(model.task), model.spec.layers[0]
    ids, T, reduced = np.array([*shape.tokens, *shape.marks]), len(shape.tokens), model.token_tables().folded()
    assert reduced.neurons is not None
    own, w_out, b_out = (tensor.detach()[0].numpy() for tensor in (reduced.offset, *reduced.neurons))
    value, seen = (tensor.detach()[0, 0].numpy() for tensor in (reduced.values, reduced.scores))
    scores, pattern = (None, seen) if layer.mixing == "linear" else (seen[np.ix_(ids[:T], ids)], None)
    if pattern is not None and reduced.softmax:
        pattern = np.exp(pattern - pattern.max(1, keepdims=True))
        pattern = pattern / pattern.sum(1, keepdims=True)
    classes = np.array(shape.classes)
    return Tables(
        ids, T, shape.length, own[ids[:T]], value[ids], scores, pattern, reduced.softmax, bool(shape.marks), classes,
        (w_out[:, classes].T[:, None] - w_out.T[None]), b_out[classes][:, None] - b_out[None],
    )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite give infinite bounds
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
    u = ROUNDOFF[dtype]
    parts: Any = model
    smallest, largest = limits(dtype)
    attn, readout = parts.blocks[0].attn, parts.unembed
    # The embedding is of every token, including those outside the alphabet.
    embedding, w_in, b_in, w_out, b_out, w_q, w_k = (
        part.detach().double().abs().cpu().numpy()
        for part in (parts.embed.W_E, readout.W_in, readout.b_in, readout.W_out, readout.b_out, attn.W_Q, attn.W_K)
    )
    d, p = w_in.shape
    keys = tables.L + tables.bos
    reach = embedding[tables.ids] @ w_in  # size that one token's value can have in a neuron's sum
    sums, errors, weight = _mixing(model, tables, reach, u)
    own = (reach[: tables.T] + b_in)[:, None]
    hidden_error = errors * (1 + gamma(2 * keys, u)) + gamma(keys + d + 8 + extra, u) * (own + sums + errors)
    # Underflow: of weights, of weights times values, and of values times neurons, before or after they are mixed.
    hidden_error += keys * smallest * reach.max()
    hidden_error += smallest * ((keys + 8) * (1 + w_in.sum(0)) + (d + 8) * (1 + weight))
    active = np.maximum(highest, 0) + hidden_error
    through = np.einsum("tkp,kjp->tkj", hidden_error, np.abs(tables.lead))
    last = active @ w_out + b_out  # (T, L, n_out)
    right = np.take_along_axis(last, tables.classes[None, :, None], axis=2)
    bound = through + gamma(p + 4, u) * (last + right) + (p + 4) * smallest
    mixed = keys * embedding.max() * (1 if tables.scores is None else 1 + np.abs(tables.scores).max())
    inside = 1.0 if tables.scores is None else d**3 * embedding.max() ** 2 * w_q.max() * w_k.max()
    biggest = max(float((own + sums + errors).max()), float(last.max()), float(mixed), float(inside))
    safe = np.isfinite(bound) & (biggest < largest)
    return np.where(safe, bound, np.inf)


def _mixing(model: TaskModel, tables: Tables, reach: np.ndarray, u: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the mixed value's size in every neuron's sum and its error from the pattern, both (T, L, p), and the
    largest sum of a row of the pattern."""
    T, L, keys = tables.T, tables.L, tables.L + tables.bos
    numbers = Arithmetic(u)
    attn: Any = model.blocks[0].attn
    if tables.pattern is not None:
        relative = 0.0
        if tables.softmax:  # for numbers that are known exactly
            spread = 2 * attn.W_mix.detach().double().abs().max()
            relative = float(numbers.weight_error(torch.zeros(()), spread, keys))
        weight = float(np.abs(tables.pattern).sum(1).max())
        sums = np.broadcast_to(weight * reach[:T].max(0), (T, L, reach.shape[1]))
        return sums, relative * sums, weight
    x = exact(model.embed.W_E.detach()[tables.ids])[None]
    q, k = (projected(numbers, model, 0, name, x)[0] for name in "QK")
    scores = numbers.scores(q[:, :T], k, model.spec.layers[0].factor(model.spec.d_model))[0]
    if tables.softmax:
        spread = scores.value.amax(1) - scores.value.amin(1)
        relative_t = numbers.weight_error(scores.error.amax(1), spread, keys).numpy()
        sums = np.broadcast_to(reach.max(0), (T, L, reach.shape[1]))
        return sums, relative_t[:, None, None] * sums, 1.0
    sums, errors = (_over_slots(tables, weights.numpy(), reach) for weights in (scores.size, scores.error))
    return sums, errors, float(scores.size.max()) * keys


def _over_slots(tables: Tables, weights: np.ndarray, reach: np.ndarray) -> Float[np.ndarray, "T L p"]:
    """Return the largest sum of weights * reach: k own tokens, the worst other one L - k times, and [BOS]."""
    T, L = tables.T, tables.L
    each = weights[:, :T, None] * reach[None, :T]
    own = each[np.arange(T), np.arange(T)]
    k = np.arange(1, L + 1)[None, :, None]
    total = k * own[:, None] + (L - k) * each.max(1)[:, None]
    return total + (weights[:, T, None] * reach[T])[:, None] if tables.bos else total
