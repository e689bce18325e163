"""The forward pass of a one-layer model on contexts of k tokens, read at the last token, for many models at once.

Each (token, position) pair is projected once, and contexts look up the results. Only the last token is a query. With
short contexts and many heads, this is two to seven times as fast as sequence.py, measured with 8 and 64 models on the
shipped bigram, k-gram and lookup tables. Every tensor has a leading axis of models. Logits and gradients equal those of
sequence.py up to rounding.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.errors import first_few
from interp.spec import Bias, ModelSpec


def context_refusal(spec: ModelSpec) -> str | None:
    """Return the reason why a spec has no forward pass on contexts, or None."""
    if len(spec.layers) != 1 or spec.readout_at != "last" or spec.readout != "linear":
        return "the forward pass on contexts needs one layer, read at the last token by a linear readout"
    layer = spec.layers[0]
    if layer.mixing != "dot" or layer.normalizer != "softmax" or layer.norm != "none" or layer.log_length != "none":
        return "the forward pass on contexts needs softmax attention without layer norm or length scaling"
    if spec.final_norm != "none":
        return "the forward pass on contexts does not support a final layer norm"
    if layer.bias != Bias():
        return "the forward pass on contexts does not support biases in attention"
    if spec.extras:
        return f"the forward pass on contexts does not support {first_few(spec.extras)}"
    if spec.positions not in ("none", "learned"):
        return f"the forward pass on contexts needs learned positions or none, not {spec.positions!r}"
    return None


def context_logits(
    spec: ModelSpec, tensors: Mapping[str, Tensor], contexts: Int[Tensor, "models_or_1 rows k"]
) -> Float[Tensor, "models rows n_out"]:
    """Compute logits at the last token of each context. Every tensor has a leading axis of models.

    contexts: (1, rows, k) if all models get the same contexts, otherwise (models, rows, k).
    """
    layer, k = spec.layers[0], contexts.shape[2]
    W = {name.removeprefix("blocks.0."): tensor for name, tensor in tensors.items()}
    embedding = W["embed.W_E"]
    models, n_tokens, d = embedding.shape
    shift = torch.arange(models, device=contexts.device)[:, None, None]
    index = contexts + n_tokens * torch.arange(k, device=contexts.device) + k * n_tokens * shift

    # The input to attention, for each token at each position.
    positions = W.get("attn.W_pos", W.get("pos_embed.W_pos", embedding.new_zeros(models, k, d)))
    placed = embedding[:, None] + positions[:, :k, None]
    entering = placed if spec.positions_enter == "residual" else embedding[:, None].expand_as(placed)

    def look_up(features: Float[Tensor, "models places features"], at: Tensor) -> Float[Tensor, "*at features"]:
        return features.flatten(0, 1).index_select(0, at.flatten()).view(*at.shape, -1)

    def project(name: str, x: Tensor) -> Float[Tensor, "models places features"]:
        """Compute all heads' queries, keys or values, concatenated."""
        return x @ W[f"attn.{name}"].transpose(1, 2).flatten(2)

    by_place, last = placed.flatten(1, 2), index[:, :, -1]
    seen = look_up(by_place, index)  # (models, rows, k, d)
    asked = project("W_Q", placed[:, -1]) * layer.factor(spec.d_model)
    query = look_up(asked, last - (k - 1) * n_tokens * (shift[:, 0] + 1)).unflatten(2, (layer.n_heads, -1))
    if "attn.W_K" in W:
        keys = look_up(project("W_K", by_place), index).unflatten(3, (layer.n_heads, -1))
        scores = (query[:, :, None] * keys).sum(-1)
    else:
        scores = seen @ query.mT
    pattern = scores.softmax(2)  # (models, rows, k, heads): softmax is slow over a short last axis
    if "attn.W_V" in W:
        values = look_up(project("W_V", by_place), index).unflatten(3, (layer.n_heads, -1))
        z = (pattern[..., None] * values).sum(2)
    else:
        z = pattern.mT @ seen
    written = z.flatten(2) @ W["attn.W_O"].flatten(1, 2) if "attn.W_O" in W else z.sum(2)
    stream = look_up(entering.flatten(1, 2), last) + written
    if layer.mlp is not None:
        hidden = stream @ W["mlp.W_in"] + W["mlp.b_in"][:, None]
        hidden = hidden.relu() if layer.mlp.activation == "relu" else functional.gelu(hidden)
        stream = stream + hidden @ W["mlp.W_out"] + W["mlp.b_out"][:, None]
    out = stream @ W["unembed.W_U"]
    return out + W["unembed.b_U"][:, None] if "unembed.b_U" in W else out
