"""What later parts and the readout read of the residual stream: the row spaces of their reading weights.

A value matters only as far as someone reads it. The stream is read by the queries, keys and values of heads and by the
neurons of MLPs, each through the gains of the norm before it, and by the readout. Of a head's values, only directions
count that its output weights carry to a later reader; of an MLP's neurons, only those without which (at their means)
answers change: dead neurons, and those that write where nobody reads, read nothing. Found from the readout backwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.measures.runs import Part
from interp.models.architecture.blocks import PostNormBlock
from interp.programs.running import Running, softmax
from interp.support.cached import cached_method

EVEN = 0.01
"""Spread of the scores of a query up to which attention is even, so that queries and keys read nothing."""
SMALL = 1e-6
"""Size of a reader, relative to one of size 1, below which it reads nothing."""
SILENT = 1e-4
"""Size of what is read of a neuron's output, relative to that of the largest one, up to which nothing is."""


@dataclass(frozen=True, eq=False)
class Readers:
    """Who reads the residual stream. Maps have float64, and each reader has size 1.

    running: the model as it is. parts: those that matter, in order of running; others read nothing. mean: a value at
    its mean over positions of the same kind. check: is called before each run.
    """

    running: Running
    parts: Sequence[Part]
    mean: Callable[[Tensor], Tensor]
    check: Callable[[], None]
    every: bool = False
    """Whether all neurons of an MLP read whose output is read, also where no answer changes without them."""

    def of(self, part: Part, parts: Sequence[Part] | None = None) -> Float[Tensor, "d_part r"]:
        """A map from a part's value (hook_z or hook_mlp_out) to what is read of it; distances are what readers see.

        parts: only these later parts read it, and the readout. A value that nobody reads, but that matters for a norm,
        say, is its own map.
        """
        read = self._of_written(part, self.after(part, parts))
        return (read if read.shape[1] else torch.eye(len(read)).double()).float()

    def after(self, part: Part, parts: Sequence[Part] | None = None) -> Float[Tensor, "d_model n_read"]:
        """What the readout and later parts read of the stream, in at most d_model dimensions."""
        later = [reader for reader in self.parts if runs_before(part, reader) and (parts is None or reader in parts)]
        return compact(torch.cat([self.readout, *(self.by(reader) for reader in later)], 1))

    @property
    def readout(self) -> Float[Tensor, "d_model n_out"]:
        """What the readout reads; of logits, only their differences."""
        model: Any = self.running.subject.model
        hidden = hasattr(model.unembed, "W_in")
        last = double(model.unembed.W_in if hidden else model.unembed.W_U)
        last = last - last.mean(1, keepdim=True) if last.shape[1] > 1 and not hidden else last
        return sized(through(getattr(model, "ln_final", None), last))

    @cached_method
    def by(self, part: Part) -> Float[Tensor, "d_model n_read"]:
        """What a part reads of the stream."""
        return self._by_head(part) if part.head is not None else self._by_mlp(part)

    def _by_head(self, head: Part) -> Float[Tensor, "d_model r"]:
        block = self.running.blocks[head.layer]
        norm = None if isinstance(block, PostNormBlock) else getattr(block, "ln1", None)
        read = self._of_written(head, self.after(head))
        matrices = [double(block.attn.W_V[head.head]) @ read]
        if not even(self.running, head):
            matrices += [double(getattr(block.attn, name)[head.head]) for name in ("W_Q", "W_K")]
        return torch.cat([sized(through(norm, weights)) for weights in matrices], 1)

    def _by_mlp(self, mlp: Part) -> Float[Tensor, "d_model r"]:
        block, at = self.running.blocks[mlp.layer], self.neurons(mlp)
        norm = None if isinstance(block, PostNormBlock) else getattr(block, "ln2", None)
        matrices = [double(getattr(block.mlp, name))[:, at] for name in ("W_in", "W_gate") if hasattr(block.mlp, name)]
        return compact(torch.cat([sized(through(norm, weights)) for weights in matrices], 1))

    def _of_written(self, part: Part, read: Float[Tensor, "d_model n_read"]) -> Float[Tensor, "d_part r"]:
        """The same of a part's value as of what it writes to the stream."""
        if part.head is None:
            return read
        return compact(double(self.running.blocks[part.layer].attn.W_O[part.head]) @ read)

    def neurons(self, mlp: Part) -> Int[Tensor, "neurons"]:
        """The neurons of an MLP without which answers change; all others are at their means at once.

        Those that add least to what is read are left out first, as many as can go.
        """
        running, out = self.running, self.running.blocks[mlp.layer].mlp.W_out.detach().float().cpu()
        read = self._of_written(mlp, self.after(mlp)).float()
        if self.every:
            sizes = (out @ read).norm(dim=1)
            return (sizes > SILENT * sizes.max()).nonzero()[:, 0]
        acts = running.neurons(mlp.layer)
        acts = acts - self.mean(acts)
        order = (acts[running.mask].square().mean(0).sqrt() * (out @ read).norm(dim=1)).argsort(stable=True)
        value, base = running.value(mlp), running.kept({}).share

        def stays(n: int) -> bool:
            self.check()
            return running.kept({mlp: value - acts[..., order[:n]] @ out[order[:n]]}).share >= base

        n = len(order) - bisect_left(range(len(order), 0, -1), True, key=stays)
        return order[n:].sort().values


def runs_before(part: Part, later: Part) -> bool:
    """Whether a part's output is there when another one reads the stream."""
    same = part.layer == later.layer and part.head is not None and later.head is None
    return part.layer < later.layer or same


def even(running: Running, head: Part) -> bool:
    """Whether the attention of a head with softmax is even at all queries."""
    _, _, scores = running.scores(head)
    return softmax(running.blocks[head.layer]) and float(spread(scores, ~torch.isinf(scores)).max()) < EVEN


def spread(scores: Float[Tensor, "queries keys"], among: Bool[Tensor, "queries keys"]) -> Float[Tensor, "queries"]:
    """How much the scores of some keys differ, for each query; -inf where there are none."""
    return scores.masked_fill(~among, -torch.inf).amax(1) - scores.masked_fill(~among, torch.inf).amin(1)


def through(norm: Any, weights: Float[Tensor, "d_model k"]) -> Float[Tensor, "d_model k"]:
    """What weights read before a norm that divides by one number for each position: its gains, and no mean."""
    if norm is None or not hasattr(norm, "eps"):
        return weights
    weights = double(norm.w)[:, None] * weights if hasattr(norm, "w") else weights
    return weights if "RMS" in type(norm).__name__ else weights - weights.mean(0)


def sized(weights: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
    """Weights scaled to size 1."""
    size = weights.norm()
    return weights / size if float(size) > SMALL else weights[:, :0]


def compact(maps: Float[Tensor, "d k"]) -> Float[Tensor, "d r"]:
    """A map with the same distances, in no more dimensions than there are different ones."""
    if maps.shape[1] == 0:
        return maps
    u, s, _ = torch.linalg.svd(maps, full_matrices=False)
    return (u * s)[:, s > SMALL * float(s[0]) if float(s[0]) > 0 else s > 0]


def double(weights: Tensor) -> Tensor:
    return weights.detach().double().cpu()
