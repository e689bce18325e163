"""A program as a hypothesis: each step that describes a part is a variable at that part, computed from others."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError
from interp.measures.hypothesis import Hypothesis, Variable
from interp.programs.language import Program, Step, Table
from interp.programs.words import said


def as_hypothesis(program: Program) -> Hypothesis:
    """Return the steps of parts as variables for interp.evaluate_hypothesis. Raises InterpError if there are none.

    Values are those with the largest weight. Tables over other variables are computed from these (`of`); all else is
    computed from the tokens.
    """
    steps = [step for step in program.steps if step.part]
    last: dict[str, Step] = {step.part: step for step in steps}  # of a head with levels, the level
    if not last:
        raise InterpError("the program has no step that describes a part, so there is no hypothesis to test")
    names = {step.name: f"{said(program, step.name).removeprefix('the ')} ({part})" for part, step in last.items()}
    layers = {part: int(part.split(" ")[1].split(".")[0]) for part in last}
    variables = []
    for part, step in last.items():
        place = part if layers[part] == max(layers.values()) and program.read != "all" else f"{part} @ each"
        of = tuple(names[one] for one in step.of) if isinstance(step, Table) and set(step.of) <= set(names) else ()
        computed = _Looked(program, step) if of and isinstance(step, Table) else _Run(program, step.name)
        variables.append(Variable(names[step.name], at=place, of=of, function=computed))
    return Hypothesis(variables)


class _Run:
    """The value of a variable at each position, from the tokens."""

    def __init__(self, program: Program, name: str):
        self.program, self.name = program, name

    def __call__(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        return self.program.run(tokens.cpu())[self.name].argmax(-1)


class _Looked:
    """The value of a table, from the values of its variables."""

    def __init__(self, program: Program, step: Table):
        self.sizes, self.entries = [len(program.values[name]) for name in step.of], torch.tensor(step.entries)

    def __call__(self, *values: Tensor) -> Tensor:
        index = torch.zeros_like(values[0])
        for value, size in zip(values, self.sizes, strict=True):
            index = index * size + value
        return self.entries[index]
