"""The outputs of a task model with 50 digits, one row at a time: what rounding did to an answer of a float64 run.

This is the forward pass that the spec defines, in mpmath's numbers: attention is written here, and the rest of a block
in rounding.py, for every kind of number. Of the model it takes parameters, constants and position codes, as they are;
rotary angles, slopes and scales come from their formulas.
"""

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from interp.certificates.rounding import before_attention, behind_attention, normed
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import Layer

DIGITS = 50
Numbers = Any
"""A numpy array of mpmath's numbers."""


def products(model: TaskModel, length: int) -> int:
    """Count the products of numbers that `outputs_at` takes for a row of this many tokens, roughly."""
    weights = sum(w.numel() for name, w in model.named_parameters() if not name.startswith(("embed.", "pos_embed.")))
    heads = sum(layer.n_heads * layer.d_head for layer in model.spec.layers)
    return length * weights + 2 * heads * length**2


class Precise:
    """A task model's forward pass with DIGITS digits."""

    def __init__(self, model: TaskModel) -> None:
        self.model, self.context = model, mpmath.MPContext()
        self.context.dps = DIGITS
        self.number = np.frompyfunc(self.context.mpf, 1, 1)
        self.exp, self.root = (np.frompyfunc(f, 1, 1) for f in (self.context.exp, self.context.sqrt))

    @torch.no_grad()
    def outputs_at(self, tokens: Sequence[int], place: int) -> Numbers:
        """Return the outputs at one position of a row without padding, (n_out,)."""
        model: Any = self.model
        row = torch.tensor([[*tokens]])
        x = self._of(model.embed.W_E[row[0]]) + self._of(model.pos_embed(row)[0])
        last = len(model.blocks) - 1
        for index, (layer, block) in enumerate(zip(model.spec.layers, model.blocks)):
            asking = [place] if index == last else [*range(len(x))]
            mixed = self._attention(layer, block.attn, before_attention(self, model, index, x), asking)
            x = behind_attention(self, model, index, x[asking] + mixed)
        read = model.unembed
        if model.spec.readout == "relu_mlp":
            return self.linear(np.maximum(self.linear(x[0], read.W_in, read.b_in), 0), read.W_out, read.b_out)
        return self.linear(x[0], read.W_U, read.b_U)

    def _of(self, tensor: Tensor) -> Numbers:
        return self.number(tensor.detach().double().cpu().numpy())

    # The operations with which rounding.py goes from a layer's attention to the next layer.

    def linear(self, x: Numbers, weight: Tensor, bias: Tensor | None = None) -> Numbers:
        return x @ self._of(weight) if bias is None else x @ self._of(weight) + self._of(bias)

    def add(self, x: Numbers, y: Numbers) -> Numbers:
        return x + y

    def times(self, x: Numbers, y: Numbers) -> Numbers:
        return x * y

    def shifted(self, x: Numbers, bias: Tensor) -> Numbers:
        return x + self._of(bias)

    def norm(self, x: Numbers, kind: str, weight: Tensor, bias: Tensor, eps: float) -> Numbers:
        centered = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        scale = self.root((centered**2).mean(-1, keepdims=True) + self.context.mpf(eps))
        return centered / scale * self._of(weight) + self._of(bias)

    def activation(self, x: Numbers, name: str) -> Numbers:
        c = self.context
        rule = {
            "relu": lambda v: max(v, c.zero),
            "gelu": lambda v: v * c.ncdf(v),
            "gelu_new": lambda v: v / 2 * (1 + c.tanh(c.sqrt(2 / c.pi) * (v + c.mpf(0.044715) * v**3))),
            "silu": lambda v: v / (1 + c.exp(-v)),
        }[name]
        return np.frompyfunc(rule, 1, 1)(x)

    def _attention(self, layer: Layer, attn: Any, x: Numbers, asking: list[int]) -> Numbers:
        x = x + self._of(attn.W_pos[: len(x)]) if hasattr(attn, "W_pos") else x
        seen = np.tri(len(x), dtype=bool)[asking] if attn.causal else np.ones((len(asking), len(x)), dtype=bool)
        out = np.zeros((len(asking), x.shape[1]), dtype=object) + self._of(attn.b_O)
        for head in range(layer.n_heads):
            pattern = self._pattern(layer, self._scores(layer, attn, x, asking, head), seen)
            values = self.linear(x, attn.W_V[head], attn.b_V[head])
            out = out + self.linear(pattern @ values, attn.W_O[head])
        return out

    def _pattern(self, layer: Layer, scores: Numbers, seen: Numbers) -> Numbers:
        if layer.normalizer == "none":
            return np.where(seen, scores, self.context.zero)
        weights = np.where(seen, self.exp(scores - scores.max(-1, keepdims=True)), self.context.zero)
        return weights / weights.sum(-1, keepdims=True)

    def _scores(self, layer: Layer, attn: Any, x: Numbers, asking: list[int], head: int) -> Numbers:
        if layer.mixing == "linear":
            return self._of(attn.W_mix[head][asking, : len(x)])
        c, spec, n = self.context, self.model.spec, len(x)
        q = self.linear(x[asking], attn.W_Q[head], attn.b_Q[head])
        k = self.linear(x, attn.W_K[head], attn.b_K[head])
        if layer.query_key_norm:
            q, k = normed(self, attn.q_norm, q), normed(self, attn.k_norm, k)
        if spec.positions == "rotary":
            q, k = self._turned(q, asking), self._turned(k, [*range(n)])
        sizes = {"inv_sqrt_d_head": layer.d_head, "inv_sqrt_d_model": spec.d_model}
        scale = 1 / c.sqrt(sizes[layer.scale]) if isinstance(layer.scale, str) else c.mpf(layer.scale)
        if layer.log_length != "none":
            scale = scale * c.log(n if layer.log_length == "current" else layer.log_length)
        scores = q @ k.T * scale
        if spec.positions == "alibi":
            slope = c.mpf(2) ** (c.mpf(-8 * (head + 1)) / layer.n_heads)
            scores = scores - slope * self.number(np.subtract.outer(asking, np.arange(n)))
        return scores

    def _turned(self, x: Numbers, places: list[int]) -> Numbers:
        """Rotate pairs of components by their positions (Su et al. 2021)."""
        c, spec = self.context, self.model.spec
        dim, out = spec.rotary_dim or x.shape[1], x.copy()
        for pair in range(dim // 2):
            a, b = (2 * pair, 2 * pair + 1) if spec.rotary_pairs == "adjacent" else (pair, pair + dim // 2)
            rate = c.mpf(spec.rotary_base) ** (-c.mpf(2 * pair) / dim)
            cos, sin = (np.array([f(rate * i) for i in places], dtype=object) for f in (c.cos, c.sin))
            out[:, a], out[:, b] = x[:, a] * cos - x[:, b] * sin, x[:, a] * sin + x[:, b] * cos
        return out
