"""A program as a hypothesis: each part that has a step is a variable at its place, computed from those it reads.

The answer is the program's own, from the variables: so it is known for values that meet in no input, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.measures.hypothesis import AtRead, Hypothesis, Variable
from interp.programs.language import Program
from interp.programs.steps import Head, Step, codes
from interp.programs.variable_words import said

TOKEN = "token"
ROUNDED = 1e-6
"""Shares that differ by less are one value."""


def as_hypothesis(
    program: Program, copies: Mapping[str, str] = MappingProxyType({}), classes: Sequence[int] | None = None
) -> Hypothesis:
    """Return the steps of parts as variables for interp.evaluate_hypothesis. Raises InterpError if there are none.

    copies: parts without a step that carry what another part does, and which; a variable is in all of these together.
    classes: the number of each of the program's answers, where these are sets of outputs (see tasks.sets).

    A variable is computed from those that its step reads (`of`), or from the tokens, where it reads nothing else. One
    that a head, or a step at each position, reads has its place at each position; others have it where the answer is
    read.
    """
    steps = {step.part: step for step in program.steps if step.part}  # of a head with levels, the level
    for step in program.steps:
        if step.part and step is not steps[step.part] and _readers(program, step, steps[step.part]):
            steps[step.part] = step  # its shares are read, too
    if not steps:
        raise InterpError("the program has no step that describes a part, so there is no hypothesis to test")
    names = {step.name: _named(program, step) for step in steps.values()}
    parents = {step.name: _parents(program, step, set(names)) for step in steps.values()}
    values = {name: _Numbers(len(program.values[name])) for name in names}
    everywhere: set[str] = set()
    for step in reversed(list(steps.values())):  # in the order of running, so that readers come first here
        if isinstance(step, Head) or step.name in everywhere:
            everywhere |= set(parents[step.name])
    variables = []
    for step in steps.values():
        of = parents[step.name]
        of = () if of == (TOKEN,) else of
        parts = [step.part, *(part for part, other in copies.items() if other == step.part)]
        place = [f"{part} @ each" if step.name in everywhere else part for part in parts]
        known = tuple(names.get(name, name) for name in of)
        variables.append(Variable(names[step.name], place, known, partial(_made, program, step.name, of, values)))
    roots = tuple(name for name in _reached(program, program.answer.of, set(names)) if name != "position")
    if TOKEN in roots or any(TOKEN in variable.of for variable in variables):
        variables.insert(0, Variable(TOKEN, function=lambda tokens: tokens))
    numbers = torch.arange(len(program.answers)) if classes is None else torch.tensor(classes)
    answered = AtRead(partial(_answered, program, roots, values, numbers))
    answer = None if _attends(program, program.answer.of, set(names)) else answered
    return Hypothesis(variables, answer, [names.get(name, name) for name in roots])


def _named(program: Program, step: Step) -> str:
    """A variable in words, with its part."""
    words = said(program, step.name).removeprefix("the ")
    if words in (f"value of {step.part}", f"rounded value of {step.part}"):
        return step.part
    return words if step.part in words else f"{words} ({step.part})"


def _readers(program: Program, step: Step, level: Step) -> bool:
    return any(step.name in reader.of for reader in (*program.steps, program.answer) if reader is not level)


def _reached(program: Program, of: tuple[str, ...], known: set[str]) -> tuple[str, ...]:
    """The known variables, tokens and positions that steps without a part are computed from."""
    reached: list[str] = []
    for name in of:
        is_known = name in known or name in (TOKEN, "position")
        reached += [name] if is_known else _reached(program, program.step(name).of, known)
    return tuple(dict.fromkeys(reached))


def _attends(program: Program, of: tuple[str, ...], known: set[str]) -> bool:
    """Whether steps that are no variables read other positions, so that values at one do not give the answer there."""
    steps = [program.step(name) for name in of if name not in known and name not in (TOKEN, "position")]
    return any(isinstance(step, Head) or _attends(program, step.of, known) for step in steps)


def _parents(program: Program, step: Step, known: set[str]) -> tuple[str, ...]:
    """What a step is computed from; positions and padding are known with the tokens."""
    reached = _reached(program, step.of, known - {step.name})
    plain = tuple(name for name in reached if name in known)
    tokens = len(plain) < len(reached) or not plain or (isinstance(step, Head) and program.pad is not None)
    return (TOKEN, *plain) if tokens else plain


class _Numbers:
    """Whole numbers for what a variable holds: its value, or a further number for each mixture of values."""

    def __init__(self, size: int):
        self.rows = list(torch.eye(size, dtype=torch.float64))
        self.known = {self._key(row): number for number, row in enumerate(self.rows)}

    def _key(self, row: Float[Tensor, "values"]) -> bytes:
        return (row / ROUNDED).round().to(torch.int32).numpy().tobytes()

    def numbers(self, weights: Float[Tensor, "rows length values"]) -> Int[Tensor, "rows length"]:
        _, back = (weights / ROUNDED).round().flatten(0, 1).unique(dim=0, return_inverse=True)
        first = torch.full((int(back.max()) + 1,), len(back)).scatter_reduce(0, back, torch.arange(len(back)), "amin")
        numbers = []
        for row in weights.flatten(0, 1)[first]:
            if (key := self._key(row)) not in self.known:
                self.known[key] = len(self.rows)
                self.rows.append(row)
            numbers.append(self.known[key])
        return torch.tensor(numbers)[back].view(weights.shape[:2])

    def weights(self, numbers: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length values"]:
        return torch.stack(self.rows)[numbers]


def _made(
    program: Program, name: str, of: tuple[str, ...], values: dict[str, _Numbers], *inputs: Int[Tensor, "rows ..."]
) -> Int[Tensor, "rows ..."]:
    """The value of a variable, from those that it is computed from: at each position, if one of them is."""
    length = max(value.shape[1] if value.ndim == 2 else 1 for value in inputs)
    whole = [(value if value.ndim == 2 else value[:, None].expand(-1, length)).cpu() for value in inputs]
    known = dict(zip(of or (TOKEN,), whole, strict=True))
    tokens = known.pop(TOKEN, torch.zeros_like(whole[0]))  # where they are not read, any will do
    made = program.run(tokens, given={other: values[other].weights(value) for other, value in known.items()})
    numbers = values[name].numbers(made[name])
    return numbers if any(value.ndim == 2 for value in inputs) else numbers[:, 0]


def _answered(
    program: Program, of: tuple[str, ...], values: dict[str, _Numbers], numbers: Int[Tensor, "answers"],
    read_at: Int[Tensor, "units"], *inputs: Int[Tensor, "units"],
) -> Int[Tensor, "units"]:  # fmt: skip
    """The program's answers at read positions, as their numbers, from the values there that they are computed from."""
    known = {name: value[:, None] for name, value in zip(of, inputs, strict=True)}
    tokens = known.pop(TOKEN, torch.zeros_like(read_at)[:, None])  # where they are not read, any will do
    made = {name: values[name].weights(value) for name, value in known.items()}
    made["position"] = codes(read_at[:, None], max(program.length, int(read_at.max()) + 1))
    return numbers[program.answer.sums(program.run(tokens, given=made)).argmax(-1)[:, 0]]
