"""A forward pass of one layer on a machine that rounds badly: each result is off by a unit roundoff.

Written apart from the proofs, from the weights alone, one plain operation after the other. What the proofs say of
rounding must hold for it, and should not be many times too large.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy_forward import ACTIVATIONS

from interp.certificates.arithmetic import EXP_ULPS, GELU_UNITS


@dataclass
class Machine:
    """Rounds by u: way = 1 or -1 away from zero or towards it each time, 0 at random."""

    u: float
    way: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def off(self, x: np.ndarray, units: float = 1) -> np.ndarray:
        signs = self.rng.choice([-1.0, 1.0], size=np.shape(x)) if self.way == 0 else self.way
        return x * (1 + units * self.u * signs)

    def total(self, x: np.ndarray) -> np.ndarray:
        """The sum over the last axis, from left to right."""
        found = x[..., 0]
        for index in range(1, x.shape[-1]):
            found = self.off(found + x[..., index])
        return found

    def matmul(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        """x (..., n) @ weight (n, m) + bias."""
        found = self.total(self.off(x[..., None, :] * np.asarray(weight).T))
        return found if bias is None else self.off(found + np.asarray(bias))

    def norm(self, x: np.ndarray, kind: str, weight: np.ndarray, bias: np.ndarray | float, eps: float) -> np.ndarray:
        n = x.shape[-1]
        if kind == "layer":
            x = self.off(x - self.off(self.total(x) / n)[..., None])
        mean = self.off(self.off(self.total(self.off(x * x)) / n) + eps)
        found = self.off(self.off(x / self.off(np.sqrt(mean))[..., None]) * weight)
        return self.off(found + bias) if kind == "layer" else found

    def activation(self, x: np.ndarray, name: str) -> np.ndarray:
        if name == "relu":
            return ACTIVATIONS[name](x)
        if name == "silu":
            return self.off(x / self.off(1 + self.off(np.exp(-x), 2 * EXP_ULPS)))
        return ACTIVATIONS[name](x) + self.off(np.zeros_like(x) + 1, GELU_UNITS) * np.abs(x) - np.abs(x)


def forward(net: Any, rows: np.ndarray, at: int, machine: Machine) -> dict[str, np.ndarray]:
    """Scores (rows, heads, seen), the stream behind attention (rows, d_model) and logits at one position."""
    model, seen = net.model, at + 1 if net.causal else rows.shape[1]
    block, post = model.blocks[0], model.spec.layers[0].norm == "post"
    attn = block.attn
    x = machine.off(plain(model.embed.W_E)[rows[:, :seen]] + net.places.numpy()[:seen])
    inner = x if post else normed(block.ln1, x, machine)
    scores, written = [], []
    for head in range(len(attn.W_O)):
        sides = (inner[:, [at]], "Q"), (inner, "K"), (inner, "V")
        q, k, v = (machine.matmul(part, *(plain(getattr(attn, f"{kind}_{name}"))[head] for kind in "Wb"))
                   for part, name in sides)  # fmt: skip
        if attn.q_norm is not None:
            q, k = normed(attn.q_norm, q, machine), normed(attn.k_norm, k, machine)
        if net.rotation is not None:
            turned = net.rotation.numpy()
            q = machine.matmul(q, turned[at])
            k = np.stack([machine.matmul(k[:, place], turned[place]) for place in range(seen)], 1)
        score = machine.off(machine.total(machine.off(q * k)) / attn.attn_scale)
        if net.added is not None:
            score = machine.off(score + net.added[head, at, :seen].numpy())
        scores.append(score)
        raised = machine.off(np.exp(machine.off(score - score.max(-1, keepdims=True))), 2 * EXP_ULPS)
        weights = machine.off(raised / machine.total(raised)[:, None])
        written.append(machine.total(machine.off(weights[:, None] * v.swapaxes(1, 2))))
    mixed = machine.matmul(np.concatenate(written, 1), plain(attn.W_O.flatten(0, 1)), plain(attn.b_O))
    stream = machine.off(x[:, at] + mixed)
    return {"scores": np.stack(scores, 1), "stream": stream, "logits": behind(model, stream, machine)}


def plain(parameter: torch.Tensor) -> np.ndarray:
    return parameter.detach().double().numpy()


def normed(part: Any, x: np.ndarray, machine: Machine) -> np.ndarray:
    if isinstance(part, torch.nn.Identity):
        return x
    bias = getattr(part, "b", None)
    return machine.norm(x, "rms" if bias is None else "layer", plain(part.w), 0.0 if bias is None else plain(bias),
                        part.eps)  # fmt: skip


def behind(model: Any, x: np.ndarray, machine: Machine) -> np.ndarray:
    block, layer = model.blocks[0], model.spec.layers[0]
    x = normed(block.ln1, x, machine) if layer.norm == "post" else x
    if layer.mlp is not None:
        part, name = block.mlp, layer.mlp.activation
        read = x if layer.norm == "post" else normed(block.ln2, x, machine)
        if layer.mlp.gated:
            opened = machine.activation(machine.matmul(read, plain(part.W_gate)), name)
            hidden = machine.off(opened * machine.matmul(read, plain(part.W_in)))
            hidden = machine.off(hidden + plain(part.b_in))
        else:
            hidden = machine.activation(machine.matmul(read, plain(part.W_in), plain(part.b_in)), name)
        x = machine.off(x + machine.matmul(hidden, plain(part.W_out), plain(part.b_out)))
        x = normed(block.ln2, x, machine) if layer.norm == "post" else x
    last = normed(model.ln_final, x, machine) if model.spec.final_norm != "none" else x
    return machine.matmul(last, plain(model.unembed.W_U), plain(model.unembed.b_U))
