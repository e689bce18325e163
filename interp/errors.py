"""interp's errors, and helpers for their messages: one sentence with a name, its value, and the expected value."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any, TypeVar

Choice = TypeVar("Choice")


class InterpError(ValueError):
    """Bad input. The command line prints its message without a traceback and exits with 2.

    Example:

        >>> interp.load("count01/papr")
        Traceback (most recent call last):
        ...
        interp.errors.InterpError: no model 'count01/papr': ...; did you mean 'count01/paper' or 'count01/minimal'?
    """


SENTENCE = 360
"""Largest length of messages that quote files."""


def cut(sentence: str) -> str:
    """Shorten a sentence to one line of at most SENTENCE characters, by cutting words out of the middle."""
    line = " ".join(sentence.split()) if "\n" in sentence or len(sentence) > SENTENCE else sentence
    if len(line) <= SENTENCE:
        return line
    first, last = line[: SENTENCE - 90], line[-80:]
    return f"{first.rpartition(' ')[0] or first} ... {last.partition(' ')[2] or last}"


class SpecError(InterpError):
    """A spec with problems; `problems` lists all of them."""

    def __init__(self, problems: Sequence[str], where: str | None = None) -> None:
        at = "" if where is None else f"{short(where, LONG_PATH)}: "
        self.problems = [cut(f"{at}{problem}") for problem in problems]
        found = len(self.problems)
        if found > MOST_PROBLEMS:
            self.problems = self.problems[:MOST_PROBLEMS]
        if found == 1:
            super().__init__(self.problems[0])
        elif found > MOST_PROBLEMS:
            super().__init__(cut(f"{at}the spec has {found:,} problems, the first: {problems[0]}"))
        else:
            listed = "; ".join(f"({number}) {cut(problem)}" for number, problem in enumerate(problems, 1))
            super().__init__(f"{at}the spec has {found} problems: {listed}")


MOST_PROBLEMS = 20
"""Largest number of problems that a message lists; if there are more, it quotes only the first."""


class CheckpointError(InterpError):
    """A file that is not a valid checkpoint. Long messages are shortened."""

    def __init__(self, sentence: str) -> None:
        super().__init__(cut(sentence))


class UnsupportedError(InterpError, TypeError):
    """Raised with the reason if a measure or method does not apply to a model or task."""


ON_META = "the model is on the meta device, where tensors have shapes but no values: load it on the CPU or a GPU"

LONG = 60
"""Largest length of names and values in messages."""
LONG_PATH = 150


def short(value: object, most: int = LONG) -> str:
    """Convert a value to text for a message, shortened in the middle if it is long. Paths may be longer."""
    text, most = str(value), LONG_PATH if isinstance(value, PurePath) else most
    return text if len(text) <= most else f"{text[: most - 20]}...{text[-15:]}"


def of_type(value: object) -> str:
    """Return the type of a value with its article: "an int", "a list"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def quoted(value: object) -> str:
    """Return the repr of a value for a message, or its type if it is too large or too deep."""
    try:
        return (
            short(repr(value))
            if not isinstance(value, dict | list | tuple) or len(value) < 100
            else short(f"{type(value).__name__} of {len(value):,} entries")
        )
    except (ValueError, RecursionError, MemoryError):  # an integer of 5,000 digits, a list 1,000 deep
        return f"{of_type(value)} too long to write out"


def first_few(names: Iterable[object], most: int = 4) -> str:
    """List the first few names for a message, and the number of others."""
    every = list(names)
    first = ", ".join(short(name) for name in every[:most])
    return first if len(every) <= most else f"{first} and {len(every) - most} more"


def as_path(value: object, what: str = "a file") -> Path:
    """Convert a value to a path. Raises InterpError for other types."""
    if not isinstance(value, str | PurePath):
        raise InterpError(f"{quoted(value)} is not a path of {what}")
    return Path(value)


def as_list(value: object, what: str, example: str) -> list[Any]:
    """Convert several values to a list. Raises InterpError for other types, including text."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InterpError(f"{what} = {quoted(value)}: give several, such as {example}")
    return list(value)


def one_of(kind: str, value: object, choices: Iterable[object]) -> str:
    """Write the message for an unknown name, with the known names and the closest matches."""
    known = [str(choice) for choice in choices]
    close = get_close_matches(str(value)[:LONG], known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    listed = first_few(known, 9 if len(known) == 9 else 8) if known else "none"
    return f"unknown {kind} {short(value)!r}; known: {listed}{hint}"


def check_one_of(kind: str, value: Choice, choices: Collection[object]) -> Choice:
    """Return value. Raises InterpError, with the known names, unless it is one of the choices."""
    if value not in choices:
        raise InterpError(one_of(kind, value, choices))
    return value


def refuse_if(reason: str | None, before: str = "") -> None:
    """Raise UnsupportedError with `before` and the reason why something does not apply, unless the reason is None."""
    if reason is not None:
        raise UnsupportedError(before + reason)


def check_size(name: str, value: object, least: int = 1) -> int:
    """Return value. Raises InterpError unless it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InterpError(f"{name} = {quoted(value)} must be an integer of at least {least}")
    return value
