"""Neurons of an MLP that depend only on one quantity, and those among them that are thresholds.

The ideal form replaces the activation of each such neuron by its mean over all positions with the same value of the
quantity; other neurons are unchanged. If the answers stay the same, the model uses no other information from these
neurons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.measures.runs import Hook, Part
from interp.mechanisms.base import Proposal, mechanism
from interp.mechanisms.bench import Bench
from interp.mechanisms.carries import cell_means, coded
from interp.mechanisms.quantities import Quantity, candidates
from interp.words import joined

FOLLOWS = 0.9
"""A neuron follows a quantity if the quantity explains this share of its variance."""
MOST, TRIED = 0.5, 3
"""Least share of active neurons that must follow a proposed quantity, and largest number of proposals."""
NAMED = 4
"""Largest number of thresholds that are named."""
SWITCHED = 0.2
"""A neuron is off at a value if its mean there is at most SWITCHED * ON times its largest mean."""
ON = 0.05
"""A threshold neuron's mean at one end must be at most this share of its largest mean."""


@dataclass(frozen=True)
class Neurons:
    """Replace the activations of some neurons."""

    hook: str
    which: Bool[Tensor, "neurons"]
    values: Float[Tensor, "rows length some"]

    def hooks(self, bench: Bench, rows: slice) -> list[Hook]:
        def put(activation: Tensor, hook: Any) -> Tensor:
            activation = activation.clone()
            activation[:, :, self.which] = self.values[rows].to(activation)
            return activation

        return [(self.hook, put)]


@mechanism("neurons", of="inside")
def neurons(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose the quantities that most neurons follow."""
    hook = f"blocks.{part.layer}.mlp.hook_post"
    if part.head is not None or hook not in bench.subject.model.hook_dict:
        return
    activation, matters = bench.activation(hook), bench.matters(part)
    seen = activation[matters]
    alive = seen.var(0, correction=0) > 1e-8 * float(seen.var(correction=0))
    if not alive.any():
        return
    ranked = []
    for one in dict.fromkeys([*bench.hints, *candidates(bench.setting)]):
        bench.clock.check()
        if (codes := coded([one], bench, matters)) is not None and int(codes.max()) > 0:
            follows = alive & (shares(seen, codes[matters]) >= FOLLOWS)
            ranked.append((int(follows.sum()), one, codes, follows))
    ranked.sort(key=lambda entry: -entry[0])
    for n, one, codes, follows in ranked[:TRIED]:
        if n < MOST * int(alive.sum()):
            return
        means = cell_means(activation, codes, matters)
        ideal = torch.where(matters[:, :, None], means[codes], activation)[:, :, follows]
        steps = thresholds(one, codes[matters], bench, matters, means[:, follows])
        which = "all" if n == int(alive.sum()) else n
        words = f"has {int(alive.sum())} active neurons ({which} depend only on {one.brief}"
        words += f", {len(steps)} as thresholds{_at(steps)})" if steps else ")"
        facts = {"quantity": one.to_json(), "neurons": n, "thresholds": len(steps)}
        yield Proposal("neurons", "inside", part, words, Neurons(hook, follows, ideal), n * len(means), n / len(alive),
                       facts)  # fmt: skip


def shares(seen: Float[Tensor, "n neurons"], codes: Tensor) -> Float[Tensor, "neurons"]:
    """Return the share of the variance of each neuron that the codes explain."""
    means = cell_means(seen[None], codes[None], torch.ones_like(codes, dtype=torch.bool)[None])
    rest = ((seen - means[codes]) ** 2).sum(0)
    spread = ((seen - seen.mean(0)) ** 2).sum(0)
    return 1 - rest / spread.clamp(min=1e-12)


def thresholds(one: Quantity, codes: Tensor, bench: Bench, matters: Tensor, means: Tensor) -> list[int]:
    """Return the value above which each threshold neuron switches on or off; [] if the quantity is a token.

    A threshold neuron is monotonic in the quantity and off at one end. The value returned is the largest one that
    occurs below the switch.
    """
    if one.tokens:
        return []
    values = one.values(bench.view)[matters]
    order = torch.zeros(len(means), dtype=torch.long).scatter_(0, codes, values).argsort()
    along = means[order]
    steps = along.diff(dim=0)
    slack = ON * along.amax(0).clamp(min=1e-12)
    monotone = (steps >= -slack).all(0) | (steps <= slack).all(0)
    ends_off = torch.minimum(along[0].abs(), along[-1].abs()) <= slack
    off = along.abs() <= slack * SWITCHED
    other_side = off != off[0]  # values at which the neuron's state differs from that at the lowest value
    known = values.unique()
    return [
        int(known[int(other_side[:, at].long().argmax()) - 1]) for at in (monotone & ends_off).nonzero()[:, 0].tolist()
    ]


def _at(steps: list[int]) -> str:
    """Describe the thresholds: each value if there are at most NAMED, otherwise their range."""
    values = sorted(set(steps))
    few = len(values) <= NAMED
    return f" above {joined(map(str, values))}" if few else f" above values from {values[0]} to {values[-1]}"
