"""The bench: a model's answers on a population, and how many stay the same when parts are replaced.

Answers after a replacement are compared with the *model's* own answers, not with the right ones. Shares are also given
for the model's right and wrong answers. A replacement (`Edit`) changes values at a hook point of the running model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import answered, decide, losses
from interp.measures.runs import Hook, Part, Reads, activations, reads_of
from interp.measures.subject import Subject
from interp.mechanisms.quantities import Quantity
from interp.mechanisms.setting import Setting, View
from interp.populations import Population

ALLOWED = 0.04
"""How much lower than the overall share the share may be for the most frequent answer, or for all other answers."""


class OutOfTime(Exception):
    """A search reached its time limit; the caller continues with the results so far."""


@dataclass
class Clock:
    """The deadline of a search (time.monotonic)."""

    until: float = math.inf

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def check(self) -> None:
        """Raise OutOfTime after the deadline."""
        if self.left < 0:
            raise OutOfTime


@runtime_checkable
class Edit(Protocol):
    """A replacement of a part: hooks for some rows of the bench's batch."""

    def hooks(self, bench: Bench, rows: slice) -> list[Hook]: ...


@dataclass(frozen=True)
class Kept:
    """Shares of the model's answers that stay the same: of all, of the right and of the wrong answers (NaN if none).

    least: see least_share. changed: number of answers that change. loss: mean loss in nats (NaN if undefined).
    """

    share: float
    right: float
    wrong: float
    least: float
    changed: int
    n: int
    loss: float


@dataclass(frozen=True)
class Bench:
    """A model and the inputs on which it is tested.

    hints: quantities that the model's program reads. clock: runs raise OutOfTime after its deadline.
    """

    subject: Subject
    population: Population
    hints: tuple[Quantity, ...] = ()
    clock: Clock = field(default_factory=Clock)

    @cached_property
    def setting(self) -> Setting:
        return Setting.of(self.subject, self.population.batch)

    @cached_property
    def view(self) -> View:
        return View.of(self.setting, self.population.batch)

    @cached_property
    def where(self) -> Reads:
        return reads_of(self.subject, self.population.batch)

    @cached_property
    def logits(self) -> Float[Tensor, "reads n_out"]:
        return self.subject.logits(self.population.batch)

    @cached_property
    def answers(self) -> Int[Tensor, "reads"]:
        """The model's answers, as output indices."""
        return decide(self.logits, self.subject.decision)

    @cached_property
    def right(self) -> Bool[Tensor, "reads"]:
        return self.subject.right_of(self.logits, self.population.batch)

    @cached_property
    def visible(self) -> Bool[Tensor, "rows length length"]:
        """Mask of the keys that each query can see."""
        mask = self.view.mask
        seen = mask[:, None, :].expand(-1, mask.shape[1], -1)
        return seen.tril() if self.setting.causal else seen

    def run(self, edits: Sequence[Edit]) -> Float[Tensor, "reads n_out"]:
        """Return the outputs with these replacements."""
        batch = self.population.batch
        if not edits:
            return self.logits

        def hooks(rows: slice) -> list[Hook]:
            self.clock.check()
            return [hook for edit in edits for hook in edit.hooks(self, rows)]

        return self.subject.logits(batch, hooks)

    def kept(self, edits: Sequence[Edit]) -> Kept:
        """Return the shares of the model's answers that stay the same with these replacements."""
        return self.compare(self.run(edits))

    def compare(self, logits: Float[Tensor, "reads n_out"]) -> Kept:
        """Return the shares of the model's answers that these outputs give."""
        found = self.agreement((decide(logits, self.subject.decision) == self.answers) & answered(logits))
        lost = losses(logits, self.where.classes, self.subject.decision)
        return Kept(**{**found.__dict__, "loss": float("nan") if lost is None else float(lost.double().mean())})

    def agreement(self, same: Bool[Tensor, "reads"]) -> Kept:
        """Return the shares for a mask of the answers that equal those of the model."""
        return Kept(
            share=float(same.double().mean()),
            right=float(same[self.right].double().mean()),
            wrong=float(same[~self.right].double().mean()),
            least=least_share(same, self.answers),
            changed=int((~same).sum()),
            n=len(same),
            loss=float("nan"),
        )

    @cached_property
    def _activations(self) -> dict[str, Tensor]:
        return {}

    def activation(self, name: str) -> Tensor:
        """Return the activation at a hook point for the whole batch, in float32; computed once."""
        if name not in self._activations:
            batch, found = self.population.batch, []
            for rows in self.subject.chunks(batch):
                self.clock.check()
                _, seen = activations(self.subject, batch[rows], [name])
                found.append(seen[name].float().cpu())
            self._activations[name] = torch.cat(found)
        return self._activations[name]

    def output(self, part: Part) -> Float[Tensor, "rows length d"]:
        """Return the output of a part at all positions."""
        return part.get(self.activation(part.hook))

    def pattern(self, part: Part) -> Float[Tensor, "rows length length"]:
        """Return the attention pattern of a head: rows, queries, keys."""
        return self.activation(f"blocks.{part.layer}.attn.hook_pattern")[:, part.head]

    def matters(self, part: Part) -> Bool[Tensor, "rows length"]:
        """Return a mask of positions that can affect an answer: the read positions in the last layer, otherwise all."""
        if part.layer == self.subject.model.cfg.n_layers - 1:
            return self.where.mask(self.population.batch)
        return self.view.mask


def least_share(same: Bool[Tensor, "reads"], answers: Int[Tensor, "reads"]) -> float:
    """Return the share of equal answers, or a smaller number if rare or frequent answers often differ.

    It is the minimum of three: the share among all answers, and ALLOWED plus the share among the most frequent answer
    and among all other answers. Otherwise, always giving the most frequent answer could reach a high share.
    """
    if not len(answers):
        return 0.0
    most = answers == answers.bincount().argmax()
    sides = [float(side.double().mean()) + ALLOWED for side in (same[most], same[~most]) if len(side)]
    return min(float(same.double().mean()), *sides)


# ---------------------------------------------------------------- replacements


@dataclass(frozen=True)
class Mean:
    """Replace a part by its mean at each position."""

    part: Part
    value: Float[Tensor, "length d"]

    @classmethod
    def of(cls, bench: Bench, part: Part) -> Mean:
        mask = bench.view.mask[:, :, None].float()
        return cls(part, (bench.output(part) * mask).sum(0) / mask.sum(0).clamp(min=1))

    def hooks(self, bench: Bench, rows: slice) -> list[Hook]:
        def put(activation: Tensor, hook: Any) -> Tensor:
            self.part.put(activation, self.value.to(activation))
            return activation

        return [(self.part.hook, put)]


@dataclass(frozen=True)
class Given:
    """Replace a part's values by `values[codes]`, one of a few values per position, at the positions of a mask."""

    part: Part
    codes: Int[Tensor, "rows length"]
    values: Float[Tensor, "cells d"]
    mask: Bool[Tensor, "rows length"]

    def hooks(self, bench: Bench, rows: slice) -> list[Hook]:
        def put(activation: Tensor, hook: Any) -> Tensor:
            mask = self.mask[rows, :, None].to(activation.device)
            value = self.values[self.codes[rows]].to(activation)
            self.part.put(activation, torch.where(mask, value, self.part.get(activation)))
            return activation

        return [(self.part.hook, put)]


@dataclass(frozen=True)
class Pattern:
    """Replace a head's attention pattern."""

    part: Part
    weights: Float[Tensor, "rows length length"]

    def hooks(self, bench: Bench, rows: slice) -> list[Hook]:
        def put(pattern: Tensor, hook: Any) -> Tensor:
            pattern = pattern.clone()
            pattern[:, self.part.head] = self.weights[rows].to(pattern)
            return pattern

        return [(f"blocks.{self.part.layer}.attn.hook_pattern", put)]
