"""The forward pass of a model with a bound on its rounding error, for any order of evaluation.

Every number carries its error bound (certificates/arithmetic.py), so fused and explicit attention and all batch sizes
are covered. In count space, one bound holds for a whole box of counts: queries, keys, values and scores of tokens carry
their bounds, and attention over n keys adds at most gamma_n times the largest value of a key.

What follows attention is written for three kinds of numbers with the same operations: Tracked by Arithmetic, one number
with its error; Forms by FormArithmetic (places_forms.py), a set of numbers; and numbers of 50 digits (digits.py).
"""

from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, Tracked, exact, format_refusal, premise_refusal
from interp.models.architecture.reduced import SAFE_SPREAD, count_space_refusal
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import Layer

Number = TypeVar("Number")
"""Tracked, Forms or numbers of 50 digits, as the arithmetic's operations take them."""


def refusal(model: TaskModel) -> str | None:
    """Return the reason why rounding cannot be bounded for this model, or None."""
    if (reason := premise_refusal(model) or format_refusal(model)) is not None:
        return reason
    for layer in model.spec.layers:
        if layer.mixing != "dot" or layer.normalizer != "softmax":
            return "rounding is bounded only for softmax attention"
    if model.spec.positions_enter != "residual":
        return "rounding is bounded only for positions in the residual stream"
    if model.spec.direction != "bidirectional" or model.spec.readout == "relu_mlp":
        return "rounding is bounded only for bidirectional models with a linear readout"
    return None


def pattern(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, queries: Tracked | None = None) -> Tracked:
    """Return the attention pattern of a layer, of shape (rows, heads, queries, keys).

    x: the input of attention, (rows, n, d_model). queries: x at the query positions (default: all positions).
    """
    layer = model.spec.layers[index]
    q = projected(numbers, model, index, "Q", x if queries is None else queries)
    k = projected(numbers, model, index, "K", x)
    return numbers.softmax(numbers.scores(q, k, score_factor(layer, model.spec.d_model, x.value.shape[1])))


def projected(numbers: Arithmetic, model: TaskModel, index: int, name: str, x: Tracked) -> Tracked:
    """Return queries, keys or values of every head, of shape (rows, heads, n, d_head), for x of (rows, n, d_model)."""
    attn: Any = model.blocks[index].attn
    bias = getattr(attn, f"b_{name}").detach()[:, None]
    return numbers.linear(x[:, None], getattr(attn, f"W_{name}").detach(), bias if bool((bias != 0).any()) else None)


def score_factor(layer: Layer, d_model: int, n: int) -> float:
    """Return the factor of the scores q k: the scale, times ln(n) if the layer has it."""
    length = {"none": None, "current": n}.get(str(layer.log_length), layer.log_length)
    scale = layer.factor(d_model)
    return scale if length is None else float(torch.tensor(float(length)).double().log()) * scale


def attends_to_nothing(model: TaskModel, index: int) -> bool:
    """Return whether all scores of a layer are zero, because all queries or all keys are zero."""
    attn: Any = model.blocks[index].attn
    silent = [(w == 0).all((1, 2)) & (b == 0).all(1) for w, b in ((attn.W_Q, attn.b_Q), (attn.W_K, attn.b_K))]
    return bool((silent[0] | silent[1]).all())


def attention(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, queries: Tracked | None = None) -> Tracked:
    """Return the heads' output in the stream at the query positions (at one position if all scores are zero)."""
    attn: Any = model.blocks[index].attn
    if attends_to_nothing(model, index):
        queries = x[:, :1]  # all positions attend uniformly and so get the same output
    values = projected(numbers, model, index, "V", x)
    z = numbers.mix(pattern(numbers, model, index, x, queries), values)
    joined = Tracked(z.value.transpose(1, 2).flatten(2), z.error.transpose(1, 2).flatten(2))
    bias = attn.b_O.detach()
    return numbers.linear(joined, attn.W_O.detach().flatten(0, 1), bias if bool((bias != 0).any()) else None)


def before_attention(numbers: Any, model: TaskModel, index: int, x: Number) -> Number:
    """Return what a layer's attention reads of the stream."""
    return normed(numbers, model.blocks[index].ln1, x) if model.spec.layers[index].norm == "pre" else x


def normed(numbers: Any, part: Any, x: Number) -> Number:
    """Apply a LayerNorm, or an RMSNorm, which has no bias; or nothing, where a layer has no norm."""
    if isinstance(part, nn.Identity):
        return x
    bias = getattr(part, "b", None)
    kind, shift = ("rms", torch.zeros(1)) if bias is None else ("layer", bias.detach())
    return numbers.norm(x, kind, part.w.detach(), shift, float(part.eps))


def behind_attention(numbers: Any, model: TaskModel, index: int, x: Number) -> Number:
    """Return the stream that the next layer or the readout reads, from the stream after a layer's attention."""
    layer, block = model.spec.layers[index], model.blocks[index]
    post = layer.norm == "post"
    x = normed(numbers, block.ln1, x) if post else x
    if layer.mlp is not None:
        mlp: Any = block.mlp
        hidden = _neurons(numbers, mlp, layer.mlp.activation, x if post else normed(numbers, block.ln2, x))
        x = numbers.add(x, numbers.linear(hidden, mlp.W_out.detach(), mlp.b_out.detach()))
        x = normed(numbers, block.ln2, x) if post else x
    last = index == len(model.spec.layers) - 1 and model.spec.final_norm != "none"
    return normed(numbers, model.ln_final, x) if last else x


def _neurons(numbers: Any, mlp: Any, activation: str, x: Number) -> Number:
    """Return act(x W_in + b_in), or with a gate act(x W_gate) * (x W_in) + b_in, which Arithmetic does not support."""
    if not hasattr(mlp, "W_gate"):
        return numbers.activation(numbers.linear(x, mlp.W_in.detach(), mlp.b_in.detach()), activation)
    opened = numbers.activation(numbers.linear(x, mlp.W_gate.detach()), activation)
    return numbers.shifted(numbers.times(opened, numbers.linear(x, mlp.W_in.detach())), mlp.b_in.detach())


def block(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, at: Int[Tensor, "rows"] | None) -> Tracked:
    """Return the stream behind a layer, at one position per row (None: at all positions)."""
    attn: Any = model.blocks[index].attn
    rows = torch.arange(len(x.value))
    inner = before_attention(numbers, model, index, x)
    if hasattr(attn, "W_pos"):
        inner = numbers.add(inner, exact(attn.W_pos.detach()[: x.value.shape[1]].expand_as(x.value)))
    queries, outer = (part if at is None else part[rows, at][:, None] for part in (x, inner))
    return behind_attention(numbers, model, index, numbers.add(queries, attention(numbers, model, index, inner, outer)))


def embed(numbers: Arithmetic, model: TaskModel, tokens: Int[Tensor, "rows n"]) -> Tracked:
    """Return token plus position embeddings, with the rounding of their sum."""
    parts: Any = model  # torch declares submodules as Tensor | Module
    with torch.no_grad():
        return numbers.add(exact(parts.embed.W_E.detach()[tokens]), exact(parts.pos_embed(tokens)))


@torch.no_grad()
def forward_with_bound(
    model: TaskModel, tokens: Int[Tensor, "rows n"], rounded_parameters: bool = False, dtype: torch.dtype | None = None
) -> tuple[Float[Tensor, "rows n_out"], Float[Tensor, "rows n_out"]]:
    """Return logits at the read position (float64), and a bound on the error of the model's own; rows without padding.

    rounded_parameters: treat parameters that are not multiples of 1/16 as rounded from real numbers. dtype: the number
    format whose error is bounded (default: the model's); float64 bounds the error of the returned logits.
    """
    numbers = Arithmetic(ROUNDOFF[dtype or model.embed.W_E.dtype], rounded_parameters)
    x, last = embed(numbers, model, tokens), len(model.spec.layers) - 1
    for index in range(last + 1):
        # In the last layer only the read position is a query.
        x = block(numbers, model, index, x, None if index < last else model.answer_positions(tokens))
    parts: Any = model
    out = numbers.linear(x[:, 0], parts.unembed.W_U.detach(), parts.unembed.b_U.detach())
    return out.value, out.error.clamp(min=_folded(model, tokens, dtype or model.embed.W_E.dtype))


def _folded(model: TaskModel, tokens: Int[Tensor, "rows n"], dtype: torch.dtype) -> float:
    """Return a bound for predict() in count space, which multiplies the heads' outputs by the readout first."""
    if count_space_refusal(model.spec) is not None:
        return 0.0
    queries = tokens[torch.arange(len(tokens)), model.answer_positions(tokens)].unique()
    seen, n = tokens.unique(), tokens.shape[1]
    return max(logit_error(model, int(query), seen, n, dtype) for query in queries)


DIFFERENCES = 2.0
"""Factor for evaluations that subtract the readouts of two tokens first."""


@torch.no_grad()
def logit_error(model: TaskModel, query: int, keys: Tensor, n: int, dtype: torch.dtype) -> float:
    """Bound on the error of the difference of any two logits in `dtype`.

    query: the token at the read position, which sees at most n keys from `keys` (token ids). The bound is the largest
    over three orders of summation: heads, then their outputs, then logits (sequences); heads, then logits at once
    (counts); logits of every key, then heads (slabs). Infinite for unsupported formats and layers.
    """
    return difference_error(model, exact(dict(model.named_parameters())["embed.W_E"]), query, keys, n, dtype)


def margin_errors(model: TaskModel, query: int, keys: Tensor, n: int) -> tuple[float, float]:
    """Bound the rounding of a margin: in the model's own format plus float64, and in float64 only; see logit_error."""
    own, double = (logit_error(model, query, keys, n, kind) for kind in (model.embed.W_E.dtype, torch.float64))
    return own + double, double


@torch.no_grad()
def difference_error(model: TaskModel, x: Tracked, query: int, keys: Tensor, n: int, dtype: torch.dtype) -> float:
    """Bound the same error for rows x of the residual stream, such as tokens at positions.

    query, keys: indices of rows.
    """
    layer, parts = model.spec.layers[0], dict(model.named_parameters())
    if dtype not in ROUNDOFF or layer.value_output != "learned" or layer.query_key != "learned":
        return float("inf")
    numbers = Arithmetic(ROUNDOFF[dtype])
    inner = before_attention(numbers, model, 0, x[None])
    q, k, v = (projected(numbers, model, 0, name, inner)[0] for name in "QKV")
    scores = numbers.scores(q[:, [query]], k, layer.factor(model.spec.d_model))
    spread, slip = scores.value.amax(-1, keepdim=True) - scores.value.amin(-1, keepdim=True), scores.error
    slip = slip.amax(-1, keepdim=True)
    # The subtracted maximum may be the score of a token that is not present. Then weights, and losses by underflow, are
    # divided by a sum as small as exp(-spread).
    lost = 2 * n * numbers.smallest * torch.exp((spread + slip).clamp(max=SAFE_SPREAD[dtype]))
    moved = numbers.weight_error(slip, spread, n)
    v = v[:, keys]
    write, read = parts["blocks.0.attn.W_O"].double(), parts["unembed.W_U"].double()
    bias = [parts.get(name) for name in ("blocks.0.attn.b_O", "unembed.b_U")]
    skip = Tracked(x.size[[query]], x.error[[query]])
    if bias[0] is not None:
        skip = numbers.add(skip, exact(bias[0].abs()[None]))
    offset = numbers.linear(skip, read.abs(), None if bias[1] is None else bias[1].abs())

    heads = numbers.average(v, moved, lost, n)
    flat = Tracked(heads.size.flatten()[None], heads.error.flatten()[None])
    stream = numbers.add(numbers.linear(flat, write.flatten(0, 1).abs()), skip)
    by_stream = numbers.linear(stream, read.abs(), None if bias[1] is None else bias[1].abs())
    out = numbers.linear(Tracked(write.abs(), torch.zeros_like(write)), read.abs())  # (heads, d_head, n_out)
    at_once = numbers.total([*_split(numbers.product(heads, out)), offset])
    keyed = numbers.average(numbers.product(Tracked(v.size, v.error), out), moved, lost, n)
    by_key = numbers.total([*_split(keyed), offset])
    worst = torch.stack([logits.error.flatten() for logits in (by_stream, at_once, by_key)]).nan_to_num(nan=torch.inf)
    two = worst.amax(0).topk(min(2, worst.shape[1])).values.sum()
    return DIFFERENCES * float(two)


def _split(parts: Tracked) -> list[Tracked]:
    return [Tracked(value, error) for value, error in zip(parts.value, parts.error, strict=True)]
