"""Rules: the right answer as a formula in plain data, so that a page without Python can check answers.

A rule is a number or a list [operation, argument, ...]. For a row of tokens (without padding) and a position in it, its
value is the right output index there (-1 if the position is not read). `evaluate` is the reference implementation; the
live panel implements the same operations. For example, are there more 1s than 0s?

    ["<", ["count", ["tokens"], 0], ["count", ["tokens"], 1]]
"""

from collections.abc import Callable, Sequence
from typing import Any

from interp.errors import check_one_of

OPERATIONS: dict[str, Callable[..., Any]] = {
    # The inputs of the rule and, inside a fold, the current item.
    "tokens": lambda env: env["tokens"],
    "own": lambda env: env["tokens"][env["place"]],
    "place": lambda env: env["place"],
    "item": lambda env: env["item"],
    "index": lambda env: env["index"],
    "so_far": lambda env: env["so_far"],
    # Lists.
    "list": lambda env, *values: list(values),
    "length": lambda env, row: len(row),
    "at": lambda env, row, index: row[index],
    "only": lambda env, row, wanted: [value for value in row if value in wanted],
    "count": lambda env, row, value: sum(each == value for each in row),
    # Numbers and truth values.
    "+": lambda env, a, b: a + b,
    "-": lambda env, a, b: a - b,
    "*": lambda env, a, b: a * b,
    "//": lambda env, a, b: a // b,
    "%": lambda env, a, b: a % b,
    "<": lambda env, a, b: a < b,
    "=": lambda env, a, b: a == b,
    "not": lambda env, a: not a,
    "and": lambda env, *values: all(values),
}


def evaluate(rule: Any, tokens: Sequence[int], place: int) -> int:
    """Return the right output index at a position of a row of tokens. Raises InterpError for an unknown operation."""
    return int(_value(rule, {"tokens": list(tokens), "place": place}))


def _value(rule: Any, env: dict[str, Any]) -> Any:
    if not isinstance(rule, list | tuple):
        return rule
    operation, *parts = rule
    if operation == "if":
        return _value(parts[1] if _value(parts[0], env) else parts[2], env)
    if operation == "fold":  # ["fold", list, start, step]: for each item, so_far becomes the value of step
        so_far = _value(parts[1], env)
        for index, item in enumerate(_value(parts[0], env)):
            so_far = _value(parts[2], {**env, "so_far": so_far, "item": item, "index": index})
        return so_far
    check_one_of("operation of a rule", operation, OPERATIONS)
    return OPERATIONS[operation](env, *(_value(part, env) for part in parts))
