"""Variables of programs in words: "the token", "the value of head 0.0", "whether the token is 'a'"."""

from __future__ import annotations

from collections.abc import Sequence

from interp.programs.language import Program
from interp.programs.steps import Evened, Linear, Normed, Product, Sums, Table, Values
from interp.support import words

NAMED = 4
"""Most values that are listed."""


def said(program: Program, name: str) -> str:
    """A variable in words: "the token", "the position", or the part that makes it, and what it is if that is known."""
    if name in ("token", "position"):
        return f"the {name}"
    part = name.removesuffix(" level")
    if name in program.words:
        step = program.by_name.get(name)
        return f"{program.words[name]} ({(step and step.part) or part})"
    if part != name:
        return f"the rounded value of {part}"
    if isinstance(step := program.by_name.get(name), Table) and not step.part and len(step.of) == 1:
        return class_words(program, step)
    if (sums := sums_behind(program, name)) is not None:
        return f"{words.counted(len(sums.bias), 'weighted sum')} over {variables_words(program, sums.of)}"
    if isinstance(step, Product) and not step.part:
        return product_words(program, step)
    if isinstance(step, Evened):
        return f"what {step.head} would read with even attention"
    return f"the value of {name}"


def class_words(program: Program, step: Table) -> str:
    """What classes a table without a part makes of one variable: "whether the token is 'a'"."""
    (name,) = step.of
    return classed(said(program, name), program.values[name], step.entries)


def variables_words(program: Program, names: Sequence[str]) -> str:
    """Variables that a step reads; of normed ones (by whichever norm the part has before it), what they are made of."""
    steps = {name: program.by_name.get(name) for name in names}
    flat = [read for name, step in steps.items() for read in (step.divided if isinstance(step, Normed) else (name,))]
    by = " (normalized)" if any(isinstance(step, Normed) for step in steps.values()) else ""
    return f"{words.joined(said(program, name) for name in flat)}{by}" if flat else "no variable"


def sums_behind(program: Program, name: str) -> Sums | None:
    """The step of sums that are no part's own value; None for other variables."""
    step = program.by_name.get(name)
    return step if isinstance(step, Sums) and not step.part else None


def product_words(program: Program, step: Product) -> str:
    """What two variables give to the same value."""
    first, second = step.of
    if first in ("token", "position") or isinstance(program.by_name.get(first), Table | Linear):
        return f"the weight of its own {said(program, first).removeprefix('the ')} in {said(program, second)}"
    return f"the products of the weights that {said(program, first)} and {said(program, second)} give to each value"


def classed(variable: str, values: Values, classes: Sequence[int]) -> str:
    """A variable of which only classes of values are told apart; classes: any number for each value."""
    alike = ([value for value, other in zip(values, classes) if other == label] for label in dict.fromkeys(classes))
    groups = sorted(alike, key=len)
    if len(groups) in (1, len(values)):
        return variable
    if len(groups) == 2 and len(groups[0]) <= NAMED:
        return f"whether {variable} is {words.either(list(map(repr, groups[0])), NAMED)}"
    few = groups[:-1]
    if len(few) <= NAMED and all(len(group) == 1 for group in few):
        return f"which of {words.joined([repr(value) for (value,) in few])} {variable} is (if any)"
    return f"the class of {variable} (one of {len(groups)})"
