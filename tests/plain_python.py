"""The Python of a program, run."""

from collections.abc import Callable, Sequence
from typing import Any

from interp.programs.language import Program
from interp.programs.source import source


def function(program: Program) -> Callable[[Sequence[str]], Any]:
    """The program's own Python as a function of a row of words."""
    names: dict[str, Any] = {}
    exec(source(program), names)
    return names["answer"]
