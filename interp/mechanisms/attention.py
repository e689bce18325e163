"""Ideal attention patterns from relations between query and key positions.

A relation selects keys for each query. Its ideal pattern has two versions. Sharp: equal attention to all keys in the
relation, or to every visible key if there are none. Graded: one weight for the keys in the relation, one for other
marks, and one for all other keys; the weights are means over the actual pattern (geometric means for a softmax). The
fit of a head with a softmax is 1 - total variation distance, averaged over positions that can affect an answer (for the
sharp version, only those with a key in the relation). Without a softmax, it is the explained variance of the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.measures.runs import Part
from interp.mechanisms.base import Proposal
from interp.mechanisms.bench import Bench, Pattern

SMALL = 1e-9


@dataclass(frozen=True)
class Relation:
    """A relation between query and key positions, with words for the keys ("at the next token")."""

    words: str
    holds: Bool[Tensor, "rows length length"]


def proposals(bench: Bench, part: Part, name: str, relation: Relation) -> Iterator[Proposal]:
    """Yield both ideal patterns of a relation for a head."""
    if part.head is None:
        return
    visible = bench.visible
    holds = relation.holds & visible
    matters = bench.matters(part)
    if not (holds.any(-1) & matters).any() or (not (visible & ~holds)[matters].any() and name != "everywhere"):
        return
    actual = bench.pattern(part)
    ideal = sharp(holds, visible)
    softmax = bool((actual[matters].sum(-1) - 1).abs().max() < 1e-3) and bool((actual >= 0).all())
    judged = matters & holds.any(-1)
    if softmax:
        yield Proposal(name, "pattern", part, f"looks {relation.words}", Pattern(part, ideal), 0,
                       closeness(actual, ideal, judged))  # fmt: skip
    if name == "everywhere" and softmax:
        return
    form, constants = graded(bench, actual, holds, matters, softmax)
    fit = closeness(actual, form, matters) if softmax else explained(actual, form, visible & matters[:, :, None])
    marks = " (marks a third)" if constants == 3 else ""
    words = f"gives {relation.words.removeprefix('at ')} one weight and everything else another{marks}"
    yield Proposal(f"{name}, graded", "pattern", part, words, Pattern(part, form), constants, fit)


def sharp(holds: Tensor, visible: Tensor) -> Float[Tensor, "rows length length"]:
    """Return equal attention to the keys in the relation, or to every visible key if there are none."""
    chosen = torch.where(holds.any(-1, keepdim=True), holds, visible).float()
    return chosen / chosen.sum(-1, keepdim=True).clamp(min=1)


def graded(
    bench: Bench, actual: Tensor, holds: Tensor, matters: Tensor, softmax: bool
) -> tuple[Float[Tensor, "rows length length"], int]:
    """Return a pattern with one weight per class of keys (in the relation, marks, others), and their number."""
    visible = bench.visible
    marks = (~bench.view.content)[:, None, :] & visible & ~holds
    classes = holds.long() + 2 * marks.long()
    counted = visible & matters[:, :, None]
    form, n = torch.zeros_like(actual), 0
    for number in range(3):
        here = counted & (classes == number)
        if not here.any():
            continue
        n += 1
        values = actual[here]
        weight = values.clamp(min=SMALL).log().mean().exp() if softmax else values.mean()
        form = torch.where(visible & (classes == number), weight, form)
    return (form / form.sum(-1, keepdim=True).clamp(min=SMALL) if softmax else form), n


def closeness(actual: Tensor, ideal: Tensor, judged: Bool[Tensor, "rows length"]) -> float:
    """Return 1 - total variation distance of two patterns, averaged over positions."""
    if not judged.any():
        return 0.0
    return float(1 - (actual[judged] - ideal[judged]).abs().sum(-1).mean() / 2)


def explained(actual: Tensor, ideal: Tensor, judged: Tensor) -> float:
    """Return the share of the variance of raw scores that the ideal form explains."""
    values, form = actual[judged], ideal[judged]
    spread = float(((values - values.mean()) ** 2).sum())
    return 1 - float(((values - form) ** 2).sum()) / spread if spread > 0 else 0.0
