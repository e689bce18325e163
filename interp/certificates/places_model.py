"""A one-layer model as tables: the scores and values of each token at each position, as the read position sees them.

Any number of heads, grouped keys and values, all kinds of positions, norms before or after attention, plain and gated
MLPs are supported. Models with other features are refused.
certificates/probes.py compares the bounds with the model itself on random inputs.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import Arithmetic, Tracked, exact, format_refusal, premise_refusal
from interp.certificates.probes import hooks_on
from interp.errors import refuse_if

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")


@dataclass(frozen=True)
class Norm:
    """LayerNorm or RMSNorm over the last axis, with a gain and (LayerNorm) a bias."""

    kind: Literal["layer", "rms"]
    weight: Float[Tensor, "gains"]
    bias: Float[Tensor, "biases"]
    eps: float

    def of(self, numbers: Arithmetic, x: Tracked) -> Tracked:
        if self.kind == "rms":
            return numbers.rms_norm(x, self.weight, self.eps)
        return numbers.layer_norm(x, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class NeuronLayer:
    """An MLP: act(x into + b_in) out + b_out, or with a gate (act(x gate) * (x into) + b_in) out + b_out."""

    activation: str
    into: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, "d_mlp"]
    gate: Float[Tensor, "d_model d_mlp"] | None
    out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, "d_model"]


@dataclass(frozen=True)
class OneLayer:
    """Weights of a one-layer model, converted to float64 without rounding.

    rotation: the rotary matrix of each position, applied to queries and keys. added: ALiBi's bias on the scores, per
    query and key position. factor: the scale of the scores. post: whether norms come after attention and MLP.
    """

    tokens: Float[Tensor, "d_vocab d_model"]
    places: Float[Tensor, "length d_model"]
    norms: tuple[Norm | None, Norm | None, Norm | None]
    query: tuple[Float[Tensor, "heads d_model d_head"], Float[Tensor, "heads d_head"]]
    key: tuple[Float[Tensor, "heads d_model d_head"], Float[Tensor, "heads d_head"]]
    value: tuple[Float[Tensor, "heads d_model d_head"], Float[Tensor, "heads d_head"]]
    query_key_norms: tuple[Norm, Norm] | None
    rotation: Float[Tensor, "length d_head d_head"] | None
    added: Float[Tensor, "heads length length"] | None
    factor: float
    write: Float[Tensor, "heads d_head d_model"]
    b_write: Float[Tensor, "d_model"]
    neurons: NeuronLayer | None
    read: Float[Tensor, "d_model n_out"]
    b_read: Float[Tensor, "n_out"]
    post: bool
    causal: bool
    dtype: torch.dtype

    @property
    def n_heads(self) -> int:
        return self.write.shape[0]


def refusal(model: TaskModel) -> str | None:
    """The reason why a model cannot be converted to tables, or None."""
    if (reason := hooks_on(model) or premise_refusal(model) or format_refusal(model)) is not None:
        return reason
    if len(model.blocks) != 1:
        return (f"it has {len(model.blocks)} layers; the method needs exactly one, so that the output of attention "
                "is a sum of one term per position")  # fmt: skip
    spec, layer = model.spec, model.spec.layers[0]
    if layer.mixing != "dot" or layer.normalizer != "softmax":
        return "its attention is not softmax attention over query-key scores"
    if spec.positions_enter == "attention" and spec.positions == "learned":
        return "its learned position embeddings are added only inside attention"
    if spec.readout == "relu_mlp":
        return "its readout is an MLP"
    if spec.decision == "indicator":
        return "its decision rule is 'indicator'"
    if layer.mlp is not None and layer.mlp.activation not in ACTIVATIONS:
        return f"its MLP's activation is {layer.mlp.activation}"
    return None


@torch.no_grad()
def one_layer(model: TaskModel, length: int) -> OneLayer:
    """Convert a model for inputs of this length. Raises UnsupportedError, with the reason, if it is not supported."""
    refuse_if(refusal(model))
    parts: Any = model
    block, attn = parts.blocks[0], parts.blocks[0].attn
    tokens = parts.embed.W_E.detach().double()
    row = torch.zeros(1, length, dtype=torch.long)
    places = torch.zeros(length, tokens.shape[1], dtype=torch.float64)
    if hasattr(parts, "pos_embed"):
        embedded = parts.pos_embed(row)[0].double()
        places = embedded if embedded.ndim == 2 else places
    norms = (
        _norm(getattr(block, "ln1", None)),
        _norm(getattr(block, "ln2", None)),
        _norm(getattr(model, "ln_final", None)),
    )
    return OneLayer(
        tokens=tokens,
        places=places.expand(length, -1),
        norms=norms,
        query=_projection(attn, "Q"),
        key=_projection(attn, "K"),
        value=_projection(attn, "V"),
        query_key_norms=_query_key_norms(attn),
        rotation=_rotation(attn, length),
        added=_added(attn, length),
        factor=_factor(model, attn, length),
        write=attn.W_O.detach().double(),
        b_write=attn.b_O.detach().double(),
        neurons=_neurons(model, block),
        read=parts.unembed.W_U.detach().double(),
        b_read=parts.unembed.b_U.detach().double(),
        post=model.spec.layers[0].norm == "post",
        causal=model.cfg.attention_dir == "causal",
        dtype=parts.embed.W_E.dtype,
    )


def _projection(attn: Any, name: str) -> tuple[Tensor, Tensor]:
    return getattr(attn, f"W_{name}").detach().double(), getattr(attn, f"b_{name}").detach().double()


def _norm(part: Any) -> Norm | None:
    if part is None or isinstance(part, nn.Identity):
        return None
    weight, bias = part.w.detach().double(), getattr(part, "b", None)
    kind: Literal["layer", "rms"] = "rms" if bias is None else "layer"
    return Norm(kind, weight, torch.zeros(1).double() if bias is None else bias.detach().double(), float(part.eps))


def _query_key_norms(attn: Any) -> tuple[Norm, Norm] | None:
    pair = _norm(getattr(attn, "q_norm", None)), _norm(getattr(attn, "k_norm", None))
    return None if pair[0] is None or pair[1] is None else (pair[0], pair[1])


def _rotation(attn: Any, length: int) -> Tensor | None:
    """Return the rotary matrices: unit vectors rotated by the model's own code, for the same rounding of sines."""
    if not getattr(attn, "rotary_dim", 0):
        return None
    d_head = attn.W_Q.shape[-1]
    units = torch.eye(d_head, dtype=attn.W_Q.dtype)[:, None, None].expand(-1, length, attn.W_Q.shape[0], -1)
    return attn._rotated(units, torch.arange(length))[:, :, 0].double().transpose(0, 1)


def _added(attn: Any, length: int) -> Tensor | None:
    """ALiBi's bias on the scores, rounded as in the model."""
    if not getattr(attn, "sloped", False):
        return None
    places = attn.W_Q.new_zeros(1, length, attn.W_Q.shape[0], 1)
    return attn._slopes(places, places).double()


def _factor(model: TaskModel, attn: Any, length: int) -> float:
    """Return the factor that turns q . k into a score."""
    log_length = model.spec.layers[0].log_length
    scale = 1.0 if log_length == "none" else math.log(length if log_length == "current" else log_length)
    return scale / float(attn.attn_scale)


def _neurons(model: TaskModel, block: Any) -> NeuronLayer | None:
    if (described := model.spec.layers[0].mlp) is None:
        return None
    mlp, gate = block.mlp, getattr(block.mlp, "W_gate", None)
    into, b_in, out, b_out = (getattr(mlp, name).detach().double() for name in ("W_in", "b_in", "W_out", "b_out"))
    return NeuronLayer(described.activation, into, b_in, None if gate is None else gate.detach().double(), out, b_out)


# ---------------------------------------------------------------- tables over tokens and places


@dataclass(frozen=True)
class PositionTables:
    """Scores and values that one query position sees, with their rounding errors.

    stream: (query token, d_model), the residual stream at that position as it enters the layer. scores: (head, query
    token, key position, key token). values: (head, key position, key token, d_head).
    """

    stream: Tracked
    scores: Tracked
    values: Tracked


@torch.no_grad()
def token_tables(net: OneLayer, u: float, at: int, seen: int) -> PositionTables:
    """Compute the tables for a query at position `at` and keys at the first `seen` positions. u: the unit roundoff."""
    numbers = Arithmetic(u)
    rows = numbers.add(
        exact(net.tokens.expand(seen, -1, -1)), exact(net.places[:seen, None].expand(-1, len(net.tokens), -1))
    )
    own = rows[at] if at < seen else rows[0]
    first = net.norms[0]
    inner = rows if first is None or net.post else first.of(numbers, rows)
    q = _headed(net, numbers, inner[at : at + 1], net.query, 0, at)
    k = _headed(net, numbers, inner, net.key, 1, 0)
    v = _linear(numbers, inner, net.value)
    return PositionTables(own, _scores(net, numbers, q[:, 0], k, at, seen), v)


def _linear(numbers: Arithmetic, x: Tracked, weights: tuple[Tensor, Tensor]) -> Tracked:
    """Project x (places, tokens, d_model) to (heads, places, tokens, d_head)."""
    matrix, bias = weights
    spread = Tracked(x.value[None], x.error[None])
    return numbers.linear(spread, matrix[:, None], bias[:, None, None] if bool((bias != 0).any()) else None)


def _headed(
    net: OneLayer, numbers: Arithmetic, x: Tracked, weights: tuple[Tensor, Tensor], which: int, start: int
) -> Tracked:
    """Queries (which = 0) or keys (1), with the query-key norm and the rotation if the model has them."""
    found = _linear(numbers, x, weights)
    if net.query_key_norms is not None:
        found = net.query_key_norms[which].of(numbers, found)
    if net.rotation is not None:
        found = numbers.linear(found, net.rotation[start : start + found.value.shape[1]][None])
    return found


def _scores(net: OneLayer, numbers: Arithmetic, q: Tracked, k: Tracked, at: int, seen: int) -> Tracked:
    """Scores (heads, query tokens, places, key tokens)."""
    heads, places, tokens, d_head = k.value.shape
    flat = Tracked(k.value.flatten(1, 2), k.error.flatten(1, 2))
    factor = abs(net.factor)
    value, reach = (q.value @ flat.value.mT) * net.factor, (q.size @ flat.size.mT) * factor
    slip = (q.size @ flat.error.mT + q.error @ flat.size.mT) * factor + numbers.gamma(d_head + 5) * reach
    slip = slip + (1 + factor) * (d_head + 1) * numbers.smallest
    slip = numbers.bounded(slip, reach * max(1.0, 1 / factor if factor else 1.0))
    shape = (heads, q.value.shape[1], places, tokens)
    value, slip = value.view(shape), slip.view(shape)
    if net.added is not None:
        shift = net.added[:, at, :seen][:, None, :, None]
        value = value + shift
        slip = slip + 2 * numbers.u * (value.abs() + shift.abs() + slip)
    return Tracked(value, slip)
