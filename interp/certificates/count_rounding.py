"""How far can rounding move the logits of a model in count space? A bound over a whole box of counts.

Tables over tokens (queries, keys, values, scores) carry the bounds of certificates.rounding; attention over n keys
adds at most gamma_n times the largest value that a key can have. The sequence model and its forward on counts take the
same sums in other orders, and both are covered.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interp.architecture.task_model import TaskModel
from interp.certificates.rounding import EXP_ULPS, ROUNDOFF, Arithmetic, Tracked, exact

BOTH_ORDERS = 2.0  # readout before or after the sum over heads: to first order the same bound, doubled to be safe


@torch.no_grad()
def logit_error(model: TaskModel, query: int, keys: Tensor, n: int, dtype: torch.dtype) -> float:
    """Bound on the error of the difference of any two logits in `dtype`.

    The query token stands at the position that is read, and sees at most n keys, each one of `keys` (token ids). The
    parameters are those of the model, exactly. Infinite for a format or a layer without a bound.
    """
    layer, parts = model.spec.layers[0], dict(model.named_parameters())
    if dtype not in ROUNDOFF or layer.value_output != "learned" or layer.query_key != "learned":
        return float("inf")
    numbers = Arithmetic(ROUNDOFF[dtype])
    x = exact(parts["embed.W_E"])
    inner = x
    if layer.norm == "pre":
        inner = numbers.layer_norm(x, parts["blocks.0.ln1.w"], parts["blocks.0.ln1.b"], layer.norm_eps)

    def project(name: str) -> Tracked:
        bias = parts.get(f"blocks.0.attn.b_{name}")
        table = Tracked(inner.value[None], inner.error[None])
        return numbers.linear(table, parts[f"blocks.0.attn.W_{name}"], None if bias is None else bias[:, None])

    q, k, v = project("Q")[:, query : query + 1], project("K")[:, keys], project("V")[:, keys]
    scale = 1 / float(model.blocks[0].attn.attn_scale)
    reach = (q.size @ k.size.mT) * scale
    scores = (q.value @ k.value.mT) * scale
    slip = (q.size @ k.error.mT + q.error @ k.size.mT) * scale + numbers.gamma(layer.d_head + 4) * reach
    slip = numbers.bounded(slip + (1 + scale) * layer.d_head * numbers.smallest, reach * max(1.0, 1 / scale))
    relative = _weight_error(numbers, scores, slip, n)
    size = v.size.amax(1, keepdim=True)
    error = relative * size + (1 + relative) * (v.error.amax(1, keepdim=True) + numbers.gamma(n + 2) * size)
    error = numbers.bounded(error + 2 * n * numbers.smallest * (1 + size), n * size)
    heads = Tracked(size.flatten()[None], error.flatten()[None])
    stream = numbers.linear(heads, parts["blocks.0.attn.W_O"].flatten(0, 1).abs())
    if "blocks.0.attn.b_O" in parts:
        stream = numbers.add(stream, exact(parts["blocks.0.attn.b_O"].abs()[None]))
    stream = numbers.add(stream, exact(parts["embed.W_E"][query].abs()[None]))
    bias = parts.get("unembed.b_U")
    logits = numbers.linear(stream, parts["unembed.W_U"].abs(), None if bias is None else bias.abs())
    two = logits.error.topk(min(2, logits.error.shape[-1])).values.sum()
    return BOTH_ORDERS * float(torch.nan_to_num(two, nan=torch.inf))


def _weight_error(numbers: Arithmetic, scores: Tensor, slip: Tensor, n: int) -> Tensor:
    """Relative error of any attention weight over n keys, for each head: (heads, 1, 1)."""
    spread = scores.amax(-1, keepdim=True) - scores.amin(-1, keepdim=True)
    worst = slip.amax(-1, keepdim=True)
    moved = 2 * worst + numbers.u * (spread + worst) + EXP_ULPS * numbers.u * (2 + n // 512)
    grown = torch.expm1(moved)
    return (1 + grown) * (1 + 2 * (grown + numbers.gamma(n))) * (1 + 4 * numbers.u) - 1 + n * numbers.smallest
