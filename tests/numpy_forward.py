"""The forward pass of a spec in plain numpy, one row of tokens at a time: the reference for every engine and model.

Nothing is padded and, but for `table_forward`, nothing is batched here, so masks, fused kernels and stacked models have
something to agree with.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

from interp.models.spec import Layer, ModelSpec

Weights = dict[str, np.ndarray]


def softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray, eps: float) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + eps) * w + b


def rms_norm(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w


def normed(x: np.ndarray, W: Weights, name: str, eps: float) -> np.ndarray:
    bias = W.get(f"{name}.b")
    return rms_norm(x, W[f"{name}.w"], eps) if bias is None else layer_norm(x, W[f"{name}.w"], bias, eps)


def rotate(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    """Each row turned by its own position, pair after pair (Su et al. 2021, eq. 15), as complex numbers."""
    out, dim = x.astype(float), spec.rotary_dim or x.shape[1]
    for j in range(dim // 2):
        one, other = (2 * j, 2 * j + 1) if spec.rotary_pairs == "adjacent" else (j, j + dim // 2)
        turned = (x[:, one] + 1j * x[:, other]) * np.exp(1j * np.arange(len(x)) * spec.rotary_base ** (-2 * j / dim))
        out[:, one], out[:, other] = turned.real, turned.imag
    return out


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / 2**0.5)) / 2,
    "gelu_new": lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def sinusoids(n: int, d: int) -> np.ndarray:
    wave = [[math.sin, math.cos][j % 2] for j in range(d)]
    return np.array([[wave[j](i / 10000 ** (2 * (j // 2) / d)) for j in range(d)] for i in range(n)])


def mix(x: np.ndarray, layer: Layer, W: Weights, spec: ModelSpec) -> tuple[np.ndarray, np.ndarray]:
    """What attention writes, and the patterns of its heads."""
    n, d = x.shape
    causal, shared = spec.direction == "causal", layer.n_heads // (layer.key_value_heads or layer.n_heads)
    W = W | {name.replace("_", "", 1): np.repeat(W[name], shared, 0) for name in W if name.startswith("attn._")}
    x = x + W.get("attn.W_pos", np.zeros((n, d)))[:n]
    scale = {"inv_sqrt_d_head": layer.d_head**-0.5, "inv_sqrt_d_model": d**-0.5}.get(layer.scale, layer.scale)  # type: ignore[arg-type]
    lengths = {"none": math.e, "current": n}.get(layer.log_length, layer.log_length)  # type: ignore[arg-type]
    out, patterns = np.zeros((n, d)) + W.get("attn.b_O", 0.0), []
    identities, zeros = [np.eye(d)] * layer.n_heads, np.zeros((layer.n_heads, 1))
    for h in range(layer.n_heads):
        value = x @ W.get("attn.W_V", identities)[h] + W.get("attn.b_V", zeros)[h]
        if layer.mixing == "linear":
            scores = W["attn.W_mix"][h]
        else:
            query = x @ W["attn.W_Q"][h] + W.get("attn.b_Q", zeros)[h]
            key = x @ W.get("attn.W_K", identities)[h] + W.get("attn.b_K", zeros)[h]
            if layer.query_key_norm:
                query = rms_norm(query, W["attn.q_norm.w"], layer.norm_eps)
                key = rms_norm(key, W["attn.k_norm.w"], layer.norm_eps)
            if spec.positions == "rotary":
                query, key = rotate(query, spec), rotate(key, spec)
            scores = query @ key.T * scale * math.log(lengths)
            if spec.positions == "alibi":
                scores = scores - 2 ** (-8 * (h + 1) / layer.n_heads) * np.subtract.outer(np.arange(n), np.arange(n))
        seen = np.tri(n, dtype=bool) if causal else np.ones((n, n), dtype=bool)
        softly = layer.normalizer == "softmax"
        pattern = softmax(np.where(seen, scores, -np.inf)) if softly else np.where(seen, scores, 0)
        patterns.append(pattern)
        out += pattern @ value @ W.get("attn.W_O", identities)[h]
    return out, np.stack(patterns)


def forward(spec: ModelSpec, weights: dict[str, Any], tokens: list[int]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Logits (n, n_out) of one row of tokens, and activations by their TransformerLens names, without a row axis."""
    W = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    seen: dict[str, np.ndarray] = {}
    x = W["embed.W_E"][tokens]
    if "pos_embed.W_pos" in W:
        x = x + W["pos_embed.W_pos"][: len(tokens)]
    if spec.positions == "sinusoidal":
        x = x + sinusoids(len(tokens), spec.d_model)
    for i, layer in enumerate(spec.layers):
        at = f"blocks.{i}."
        own = {name.removeprefix(at): value for name, value in W.items() if name.startswith(at)}

        def norm(name: str, x: np.ndarray, layer: Layer = layer, own: Weights = own) -> np.ndarray:
            return normed(x, own, name, layer.norm_eps)

        out, seen[at + "attn.hook_pattern"] = mix(norm("ln1", x) if layer.norm == "pre" else x, layer, own, spec)
        x = norm("ln1", x + out) if layer.norm == "post" else x + out
        if layer.mlp is not None:
            read, bias = norm("ln2", x) if layer.norm == "pre" else x, own.get("mlp.b_in", 0.0)
            act = ACTIVATIONS[layer.mlp.activation]
            if layer.mlp.gated:
                fired = act(read @ own["mlp.W_gate"]) * (read @ own["mlp.W_in"]) + bias
            else:
                fired = act(read @ own["mlp.W_in"] + bias)
            x = x + fired @ own["mlp.W_out"] + own.get("mlp.b_out", 0.0)
            x = norm("ln2", x) if layer.norm == "post" else x
        seen[at + "hook_resid_post"] = x
    if spec.final_norm != "none":
        x = normed(x, W, "ln_final", spec.layers[-1].norm_eps)
    if spec.readout == "relu_mlp":
        hidden = np.maximum(x @ W["unembed.W_in"] + W["unembed.b_in"], 0)
        return hidden @ W["unembed.W_out"] + W["unembed.b_out"], seen
    unembedding = W["embed.W_E"].T if spec.tied_embeddings else W["unembed.W_U"]
    return x @ unembedding + W.get("unembed.b_U", 0.0), seen


def table_forward(tensors: dict[str, Any], tokens: ArrayLike) -> np.ndarray:
    """Logits at every position of a model of a table: positions in queries, keys and values, but not in the stream.

    tokens: one sequence, or rows of sequences, which the result has as well.
    """
    W_E, W_pos, W_Q, W_O, W_U = (
        tensors[name].numpy()
        for name in ("embed.W_E", "blocks.0.attn.W_pos", "blocks.0.attn.W_Q", "blocks.0.attn.W_O", "unembed.W_U")
    )
    stream = W_E[np.asarray(tokens)]
    length, width = stream.shape[-2:]
    seen = (stream + W_pos[:length])[..., None, :, :]  # for every head
    scores = seen @ W_Q @ seen.swapaxes(-1, -2) / np.sqrt(width)
    scores[..., ~np.tri(length, dtype=bool)] = -np.inf
    return (stream + (softmax(scores) @ seen @ W_O).sum(-3)) @ W_U
