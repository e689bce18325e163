"""The errors of interp: one clear sentence that names the thing, its value, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class InterpError(ValueError):
    """Bad input. The command line prints its message without a traceback and exits with 2."""


class SpecError(InterpError):
    """A spec with problems; `problems` lists all of them, not only the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(
            self.problems[0]
            if len(self.problems) == 1
            else f"the spec has {len(self.problems)} problems:\n" + "\n".join(f"  - {p}" for p in self.problems)
        )


class CheckpointError(InterpError):
    """A file that is not a whole, honest checkpoint of a model we know."""


class UnsupportedError(InterpError, TypeError):
    """A question that makes no sense for this model, with the reason."""


LONG = 60
"""Names and values longer than this are cut in sentences."""


def short(value: object) -> str:
    """A value as a sentence shows it: cut in the middle where it is long."""
    text = str(value)
    return text if len(text) <= LONG else f"{text[: LONG - 20]}...{text[-15:]}"


def listed(names: Iterable[object], most: int = 4) -> str:
    """Names for a sentence: the first few, and how many more."""
    every = list(names)
    first = ", ".join(short(name) for name in every[:most])
    return first if len(every) <= most else f"{first} and {len(every) - most} more"


def one_of(kind: str, value: object, choices: Iterable[object]) -> str:
    """The sentence for an unknown name: what it was, what is known, and the closest names."""
    known = [str(choice) for choice in choices]
    close = get_close_matches(str(value)[:LONG], known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    return f"unknown {kind} {short(value)!r}; known: {listed(known, 12)}{hint}"
