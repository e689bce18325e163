"""Bound the rounding of a model's logits in count space, over a whole box of counts.

Tables over tokens (queries, keys, values, scores) have the bounds of certificates.arithmetic; attention over n keys
adds at most gamma_n times the largest value of a key. The sequence model and the count-space forward passes compute the
same sums in different orders, and the bound covers all of them.
"""

import torch
from torch import Tensor

from interp.architecture.reduced import SAFE_SPREAD
from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, Tracked, exact

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


@torch.no_grad()
def difference_error(model: TaskModel, x: Tracked, query: int, keys: Tensor, n: int, dtype: torch.dtype) -> float:
    """Bound the same error for rows x of the residual stream, such as tokens at positions.

    query, keys: indices of rows.
    """
    layer, parts = model.spec.layers[0], dict(model.named_parameters())
    if dtype not in ROUNDOFF or layer.value_output != "learned" or layer.query_key != "learned":
        return float("inf")
    numbers = Arithmetic(ROUNDOFF[dtype])
    q, k, v = (projected(numbers, model, x, name) for name in "QKV")
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
    at_once = numbers.total([*_each(numbers.product(heads, out)), offset])
    keyed = numbers.average(numbers.product(Tracked(v.size, v.error), out), moved, lost, n)
    by_key = numbers.total([*_each(keyed), offset])
    worst = torch.stack([logits.error.flatten() for logits in (by_stream, at_once, by_key)]).nan_to_num(nan=torch.inf)
    two = worst.amax(0).topk(min(2, worst.shape[1])).values.sum()
    return DIFFERENCES * float(two)


def projected(numbers: Arithmetic, model: TaskModel, x: Tracked, name: str) -> Tracked:
    """Return queries, keys or values for rows of the stream, of shape (heads, rows, d_head)."""
    layer, parts = model.spec.layers[0], dict(model.named_parameters())
    if layer.norm == "pre":
        x = numbers.layer_norm(x, parts["blocks.0.ln1.w"], parts["blocks.0.ln1.b"], layer.norm_eps)
    bias = parts.get(f"blocks.0.attn.b_{name}")
    table = Tracked(x.value[None], x.error[None])
    return numbers.linear(table, parts[f"blocks.0.attn.W_{name}"], None if bias is None else bias[:, None])


def _each(parts: Tracked) -> list[Tracked]:
    return [Tracked(value, error) for value, error in zip(parts.value, parts.error, strict=True)]
