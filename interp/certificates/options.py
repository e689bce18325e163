"""Options of a certification method on the command line, read from the method's signature.

A method declares its options only as parameters with types and defaults. This file does not know any of them by name.
"""

import inspect
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import pandas as pd

from interp.certificates.base import Method
from interp.errors import SEED_LIMIT, InterpError, one_of, quoted, short
from interp.tasks import Task

WORDS: dict[type, str] = {int: "an integer", float: "a number", str: "a name", bool: "true or false"}


def options_of(method: Method) -> dict[str, inspect.Parameter]:
    """Return the options for the command line: all parameters except the model and the progress callback."""
    found = inspect.signature(method.run, eval_str=True).parameters
    return {name: one for name, one in found.items() if name not in ("model", "progress")}


def options_table(method: Method, task: Task) -> pd.DataFrame:
    """Return a table with one row per option: its spelling, its accepted values for a task, and its default."""
    names = method.names(task)
    rows = [
        {
            "option": f"--{name.replace('_', '-')}",
            "takes": " or ".join([*map(repr, names[name])] if name in names else _takes(one)),
            "default": "" if one.default is None else str(one.default),
        }
        for name, one in options_of(method).items()
    ]
    return pd.DataFrame(rows, columns=["option", "takes", "default"])


def parse_options(method: Method, words: Sequence[str]) -> dict[str, Any]:
    """Convert words of a command line, ["--longest", "20"] or ["--longest=20"], to keyword arguments.

    Raises InterpError for an unknown option, a missing value, or a value of the wrong type.
    """
    known = options_of(method)
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise InterpError(f"{short(word)!r} follows no option; write --option value")
        written, equals, value = word[2:].partition("=")
        name = written.replace("-", "_")
        if name not in known:
            raise InterpError(
                f"the certificate by {method.name}: "
                + one_of("option", f"--{written}", [f"--{one.replace('_', '-')}" for one in known])
            )
        if not equals and (value := next(rest, "--")).startswith("--"):
            raise InterpError(f"--{written} needs a value: {' or '.join(_takes(known[name]))}")
        found[name] = _read(written, value, known[name])
    return found


def check_options(method: Method, given: Mapping[str, Any]) -> None:
    """Raise InterpError for an unknown option, or for a value of the wrong type or out of range."""
    known = options_of(method)
    for name, value in given.items():
        if name == "progress":
            continue
        if name not in known:
            raise InterpError(f"the certificate by {method.name}: " + one_of("option", name, known))
        kinds = _kinds(known[name])
        words = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
        plain = tuple(kind for kind in kinds if isinstance(kind, type)) + ((int,) if float in kinds else ())
        fits = value in words if isinstance(value, str) and words else isinstance(value, plain)
        if not fits or (isinstance(value, bool) and bool not in plain):
            raise InterpError(f"{name} = {quoted(value)}: give {' or '.join(_takes(known[name]))}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InterpError(f"{name} = {value} must be a finite number")
        if isinstance(value, int) and abs(value) >= SEED_LIMIT:
            raise InterpError(f"{name} = {quoted(value)} must be below 2^58")


def _kinds(option: inspect.Parameter) -> list[Any]:
    """Return the types in an annotation; a union contains several."""
    hint = option.annotation
    return list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]


def _takes(option: inspect.Parameter) -> list[str]:
    """Describe the accepted values in words."""
    kinds = _kinds(option)
    words = [repr(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    words += [word for kind, word in WORDS.items() if kind in kinds and not (kind is int and float in kinds)]
    return words


def _read(name: str, text: str, option: inspect.Parameter) -> Any:
    """Convert text to the first of the option's types that accepts it."""
    kinds = _kinds(option)
    for kind in kinds:
        if get_origin(kind) is Literal and text in get_args(kind):
            return text
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    if str in kinds:
        return text
    raise InterpError(f"--{name} {short(text)}: give {' or '.join(_takes(option))}")
