"""How far can rounding move the logits of a model in count space? A bound over a whole box of counts.

Tables over tokens (queries, keys, values, scores) carry the bounds of certificates.arithmetic; attention over n keys
adds at most gamma_n times the largest value that a key can have. The sequence model and its forwards on counts take the
same sums in other orders, and all are covered.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.architecture.reduced import SAFE_SPREAD
from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, Tracked, exact, exp_error
from interp.spec import Layer

DIFFERENCES = 2.0
"""Readouts of two tokens may be subtracted before anything is multiplied: once more what rounding does to both."""


@torch.no_grad()
def logit_error(model: TaskModel, query: int, keys: Tensor, n: int, dtype: torch.dtype) -> float:
    """Bound on the error of the difference of any two logits in `dtype`.

    The query token stands at the position that is read, and sees at most n keys, each one of `keys` (token ids). The
    parameters are those of the model, exactly. Sums are taken in three orders, and the largest bound counts: heads,
    then their outputs, then logits (sequences); heads, then logits at once (counts); logits of every key, then heads
    (slabs). Infinite for a format or a layer without a bound.
    """
    return difference_error(model, exact(dict(model.named_parameters())["embed.W_E"]), query, keys, n, dtype)


@torch.no_grad()
def difference_error(model: TaskModel, x: Tracked, query: int, keys: Tensor, n: int, dtype: torch.dtype) -> float:
    """The same for rows x of the stream, such as tokens at places: the query and the keys are rows of it."""
    layer, parts = model.spec.layers[0], dict(model.named_parameters())
    if dtype not in ROUNDOFF or layer.value_output != "learned" or layer.query_key != "learned":
        return float("inf")
    numbers = Arithmetic(ROUNDOFF[dtype])
    q, k, v = (projected(numbers, model, x, name) for name in "QKV")
    scores = scores_of(numbers, layer, model.spec.d_model, q[:, [query]], k)
    weights = Weights.of(numbers, scores.value, scores.error, n, SAFE_SPREAD[dtype])
    v = v[:, keys]
    write, read = parts["blocks.0.attn.W_O"].double(), parts["unembed.W_U"].double()
    bias = [parts.get(name) for name in ("blocks.0.attn.b_O", "unembed.b_U")]
    skip = Tracked(x.size[[query]], x.error[[query]])
    if bias[0] is not None:
        skip = numbers.add(skip, exact(bias[0].abs()[None]))
    offset = numbers.linear(skip, read.abs(), None if bias[1] is None else bias[1].abs())

    heads = weights.mixed(v)
    flat = Tracked(heads.size.flatten()[None], heads.error.flatten()[None])
    stream = numbers.add(numbers.linear(flat, write.flatten(0, 1).abs()), skip)
    by_stream = numbers.linear(stream, read.abs(), None if bias[1] is None else bias[1].abs())
    out = numbers.linear(Tracked(write.abs(), torch.zeros_like(write)), read.abs())  # (heads, d_head, n_out)
    at_once = _sum(numbers, [*_products(numbers, heads, out), offset])
    keyed = Tracked(v.size @ out.size, v.size @ out.error + v.error @ out.size + numbers.gamma(layer.d_head + 2)
                    * (v.size @ out.size) + numbers.smallest * layer.d_head)  # fmt: skip
    by_key = _sum(numbers, [Tracked(part.size, part.error) for part in _each(weights.mixed(keyed))] + [offset])
    worst = torch.stack([logits.error.flatten() for logits in (by_stream, at_once, by_key)]).nan_to_num(nan=torch.inf)
    two = worst.amax(0).topk(min(2, worst.shape[1])).values.sum()
    return DIFFERENCES * float(two)


def projected(numbers: Arithmetic, model: TaskModel, x: Tracked, name: str) -> Tracked:
    """Queries, keys or values of rows of the stream, (heads, rows, d_head)."""
    layer, parts = model.spec.layers[0], dict(model.named_parameters())
    if layer.norm == "pre":
        x = numbers.layer_norm(x, parts["blocks.0.ln1.w"], parts["blocks.0.ln1.b"], layer.norm_eps)
    bias = parts.get(f"blocks.0.attn.b_{name}")
    table = Tracked(x.value[None], x.error[None])
    return numbers.linear(table, parts[f"blocks.0.attn.W_{name}"], None if bias is None else bias[:, None])


def scores_of(numbers: Arithmetic, layer: Layer, d_model: int, q: Tracked, k: Tracked) -> Tracked:
    """Scores of queries (heads, queries, d_head) and keys (heads, keys, d_head), scaled."""
    scale = layer.factor(d_model)
    reach = (q.size @ k.size.mT) * scale
    slip = (q.size @ k.error.mT + q.error @ k.size.mT) * scale + numbers.gamma(layer.d_head + 4) * reach
    slip = slip + (1 + scale) * layer.d_head * numbers.smallest
    return Tracked((q.value @ k.value.mT) * scale, numbers.bounded(slip, reach * max(1.0, 1 / scale)))


@dataclass(frozen=True)
class Weights:
    """Attention weights over at most n keys: their relative error, (heads, 1, 1), and what a sum loses to underflow."""

    numbers: Arithmetic
    n: int
    relative: Tensor
    lost: Tensor

    @classmethod
    def of(cls, numbers: Arithmetic, scores: Tensor, slip: Tensor, n: int, safe: float) -> Weights:
        """From scores of every token, (heads, 1, d_vocab), and their errors.

        The largest score of all tokens may be subtracted though that token is not there: then weights, and with them
        what underflows beside them, are divided by a sum as small as exp(-spread).
        """
        spread = scores.amax(-1, keepdim=True) - scores.amin(-1, keepdim=True)
        worst = slip.amax(-1, keepdim=True)
        moved = 2 * worst + numbers.u * (spread + worst) + exp_error(numbers.u, n)
        grown = torch.expm1(moved)
        relative = (1 + grown) * (1 + 2 * (grown + numbers.gamma(n))) * (1 + 4 * numbers.u) - 1
        shrunk = torch.exp((spread + worst).clamp(max=safe))
        return cls(numbers, n, relative, 2 * n * numbers.smallest * shrunk)

    def mixed(self, v: Tracked) -> Tracked:
        """Sizes and errors of what each head makes of values (heads, keys, d): (heads, 1, d)."""
        size = v.size.amax(1, keepdim=True)
        error = self.relative * size + (1 + self.relative) * (
            v.error.amax(1, keepdim=True) + self.numbers.gamma(self.n + 2) * size
        )
        return Tracked(size, self.numbers.bounded(error + self.lost * (1 + size), self.n * size))


def _products(numbers: Arithmetic, heads: Tracked, out: Tracked) -> list[Tracked]:
    """What each head adds to the logits, where its outputs (heads, 1, d_head) meet (heads, d_head, n_out)."""
    size, d = heads.size @ out.size, out.value.shape[1]
    error = heads.size @ out.error + heads.error @ out.size + numbers.gamma(d + 2) * size + d * numbers.smallest
    return _each(Tracked(size, numbers.bounded(error, size)))


def _each(parts: Tracked) -> list[Tracked]:
    return [Tracked(value, error) for value, error in zip(parts.value, parts.error, strict=True)]


def _sum(numbers: Arithmetic, parts: list[Tracked]) -> Tracked:
    """A sum of sizes, with a bound that holds for any order."""
    size = torch.stack([part.size for part in parts]).sum(0)
    error = torch.stack([part.error for part in parts]).sum(0) + numbers.gamma(len(parts)) * size
    return Tracked(size, numbers.bounded(error, size))
