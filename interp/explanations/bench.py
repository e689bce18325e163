"""The bench: a model's answers on a population, and the quantities of its inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import decide
from interp.explanations.setting import Setting, View
from interp.measures.runs import Reads, reads_of
from interp.measures.subject import Subject
from interp.populations import Population

ALLOWED = 0.04
"""How much lower than the overall share the share may be for the most frequent answer, or for all other answers."""


STEPS_PER_SECOND = 20
"""Nominal steps of a search per second, about those of one core on a small model; nothing is timed."""


class OutOfSteps(Exception):
    """A search has used its steps; the caller continues with the results so far."""


@dataclass
class Steps:
    """How many steps a search may still take. They are counted, not timed, so a limit means the same everywhere."""

    left: float = math.inf

    @classmethod
    def of(cls, seconds: float) -> Steps:
        """Return the steps for a number of nominal seconds."""
        return cls(seconds * STEPS_PER_SECOND)

    def check(self) -> None:
        """Take a step. Raises OutOfSteps if there is none left."""
        self.left -= 1
        if self.left < 0:
            raise OutOfSteps


@dataclass(frozen=True)
class Bench:
    """A model and the inputs on which it is tested.

    steps: runs raise OutOfSteps when these are used.
    """

    subject: Subject
    population: Population
    steps: Steps = field(default_factory=Steps)

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
