"""Is "the same algorithm" causal? A variable of one model is put into another one.

The other model runs with the value that the first model's variable has on another input, and must answer as its own
program does with that value. The value is taken from the first model as it runs, not from its program: of the other
positions, the one is sought at which the outputs of the variable's places in the first model are nearest to those at
the source. There the two have the same value, if the first model is right about it. The second model gets what its own
places have there. So its answer is the right one only if both models hold the same variable.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.models.architecture.task_model import TaskModel
from interp.programs.explanations import Explanation
from interp.programs.interchange import Donors, FreshInputs, Interchanger, Placed, join
from interp.programs.many.one_model import Row, Tasks, common, sharing
from interp.support.resources import threads_for
from interp.tasks.populations import Population


@dataclass(frozen=True)
class Transplant:
    """One variable of a model that was put into another.

    source, target: the models. variable, into: the places of the variable in the source and in the target. changes,
    stays: how often the target answers as its program does, of the cases in which the program's answer changes and of
    those in which it stays, with the numbers of cases and the 95% intervals.
    """

    source: str
    target: str
    variable: str
    into: str
    changes: float
    changes_n: int
    changes_low: float
    changes_high: float
    stays: float
    stays_n: int
    stays_low: float
    stays_high: float


@torch.no_grad()
def transplanted(source: TaskModel, one: Row, target: TaskModel, other: Row, tasks: Tasks) -> list[Transplant]:
    """Put each variable that two models' programs share from the source into the target.

    one, other: the rows of the models. tasks: see `learned`. Variables are shared if their canonical forms have the
    same shape.
    """
    giver, taker = (_interchanger(model, row, tasks) for model, row in ((source, one), (target, other)))
    transplants = []
    with threads_for(target):
        by_shape, there = one["canonical"]["variables"], other["canonical"]["variables"]
        for shape in (shape for shape in by_shape if shape in there):
            mine, theirs = placed(giver, by_shape[shape]), placed(taker, there[shape])
            if not mine.parts or not theirs.parts:
                continue
            # No more inputs are drawn: `nearest` is about these.
            held = taker.fresh, taker.program, taker.copies
            score = _Transplanter(*held, most=1, nearest=nearest(giver, mine)).score(theirs)
            places = ", ".join(mine.parts), ", ".join(theirs.parts)
            transplants.append(Transplant(one["model"], other["model"], *places, **score.row()))
    return transplants


def _interchanger(model: TaskModel, row: Row, tasks: Tasks) -> Interchanger:
    explanation = Explanation.from_json(json.dumps(row["explanation"]))
    assert explanation.program is not None
    subject = sharing(model, tasks)
    copies = {role.part: role.like for role in explanation.parts if role.like}
    inputs = common(subject)
    exact = subject.task.n_inputs == len(inputs)
    population = Population("exact" if exact else "sample", inputs, len(inputs) if exact else subject.task.n_inputs)
    return Interchanger(FreshInputs(subject, population), explanation.program, copies)


def placed(of: Interchanger, names: Sequence[str]) -> Placed:
    """The variables of these steps as one, in all their places."""
    return join([variable for variable in of.variables if set(variable.steps) & set(names)])


def nearest(of: Interchanger, variable: Placed) -> Int[Tensor, "positions"]:
    """For each position (row * length + position), the one of another row with the nearest outputs of the places.

    Only positions of the same place in rows are compared, and padding is left out.
    """
    values = torch.cat([of.running.value(of.part(part)) for part in variable.parts], -1)
    rows, length, _ = values.shape
    donors = torch.arange(rows * length)
    for place in range(length):
        here = of.running.mask[:, place].nonzero()[:, 0]
        if len(here) > 1:
            points = values[here, place].double()
            apart = torch.cdist(points, points).fill_diagonal_(torch.inf)
            donors[here * length + place] = here[apart.argmin(1)] * length + place
    return donors


@dataclass(frozen=True, eq=False)
class _Transplanter(Interchanger):
    """Interchanges in a model whose values are those at the positions that are nearest in another model."""

    nearest: Int[Tensor, "positions"] | None = None

    def answered(self, swaps: Sequence[tuple[Placed, Donors]]) -> Int[Tensor, "reads"]:
        """The model's answers with the outputs of all places from the nearest positions."""
        assert self.nearest is not None
        return super().answered([(variable, self.nearest[donors]) for variable, donors in swaps])
