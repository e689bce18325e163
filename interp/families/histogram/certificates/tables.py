"""Tables over tokens, in float64, for the inputs of the readout's neurons in a one-layer model that counts tokens."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import premise_refusal
from interp.certificates.scope import anything
from interp.errors import UnsupportedError
from interp.families.histogram.occurrences import declared
from interp.tasks.structure import compare

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "max_length", "readout_width", "n_out"),
    **anything("layers.d_head", "layers.mixing", "layers.normalizer", "layers.scale", "layers.query_key"),
    **anything("layers.bias.q", "layers.bias.k"),
    "layers": (1,),
    "layers.value_output": ("identity",),
    "direction": ("bidirectional",),
    "readout": ("relu_mlp",),
}


def refusal(model: TaskModel) -> str | None:
    """Return the reason why the method does not apply to this model, or None."""
    spec, task = model.spec, model.task
    try:
        compare(task, [shape := declared(task)])
    except UnsupportedError as error:
        return str(error)
    if (reason := premise_refusal(model)) is not None:
        return reason
    if len(spec.layers) != 1:
        return f"the method is for one layer, this model has {len(spec.layers)}"
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
    if layer.n_heads != 1 or layer.norm != "none" or layer.mlp is not None or layer.log_length != "none":
        return "the method is for one head without layer norm, MLP and log-length scaling"
    if spec.final_norm != "none":
        return "the method is for a readout without a final layer norm"
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
            out[here] = self.margins_of(active[here], k)
        return out

    def margins_of(self, active: Float[np.ndarray, "rows p"], count: int) -> Float[np.ndarray, " rows"]:
        """Return these margins from the neurons' activations at positions whose right count is `count`."""
        leads = active @ self.lead[count - 1].T + self.lead_bias[count - 1]
        leads[:, self.classes[count - 1]] = np.inf
        return np.asarray(leads.min(1))


def tables_of(model: TaskModel) -> Tables:
    """Return the tables of a model to which the method applies."""
    shape, layer = declared(model.task), model.spec.layers[0]
    ids, T, reduced = np.array([*shape.tokens, *shape.marks]), len(shape.tokens), model.token_tables().folded()
    assert reduced.neurons is not None
    own, w_out, b_out = (each.detach()[0].numpy() for each in (reduced.offset, *reduced.neurons))
    value, seen = (each.detach()[0, 0].numpy() for each in (reduced.values, reduced.scores))
    scores, pattern = (None, seen) if layer.mixing == "linear" else (seen[np.ix_(ids[:T], ids)], None)
    if pattern is not None and reduced.softmax:
        pattern = np.exp(pattern - pattern.max(1, keepdims=True))
        pattern = pattern / pattern.sum(1, keepdims=True)
    classes = np.array(shape.classes)
    return Tables(
        ids, T, shape.length, own[ids[:T]], value[ids], scores, pattern, reduced.softmax, bool(shape.marks), classes,
        (w_out[:, classes].T[:, None] - w_out.T[None]), b_out[classes][:, None] - b_out[None],
    )  # fmt: skip


def arrays(model: TaskModel) -> dict[str, np.ndarray]:
    """Return the parameters by their short names, in float64, and `attn_scale`, the divisor of the scores."""
    parts: Any = model
    attention, readout = parts.blocks[0].attn, parts.unembed
    linear = model.spec.layers[0].mixing == "linear"
    heads = ("W_mix",) if linear else ("W_Q", "b_Q", "W_K", "b_K")
    tensors = {"W_E": parts.embed.W_E, **{name: getattr(readout, name) for name in ("W_in", "b_in", "W_out", "b_out")}}
    tensors |= {name: getattr(attention, name)[0] for name in heads}
    found = {name: tensor.detach().double().cpu().numpy() for name, tensor in tensors.items()}
    return {**found, "attn_scale": np.array(float(attention.attn_scale))}
