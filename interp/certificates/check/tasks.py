"""The tasks that this checker knows: their inputs, read positions and right answers, independently of any file.

For other tasks, labels come from the file. The claim is then that the model agrees with these labels, never that it is
right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .reading import need, whole

if TYPE_CHECKING:
    from .model import Model

LANGUAGES: dict[str, Callable[[Sequence[int]], bool]] = {
    "parity": lambda w: sum(w) % 2 == 1, "one": lambda w: sum(w) == 1, "first": lambda w: w[0] == 1,
    "palindrome": lambda w: list(w) == list(w)[::-1],
}  # fmt: skip
CLS, EOS = 2, 3
NAMES = ("histogram", "count01", "max-of-k", "modular-addition", *LANGUAGES)


class Known(NamedTuple):
    """right(tokens): the right output at each read position; raises Fault for rows that are not inputs. every(rows):
    words for the domain if the rows are all of its inputs, otherwise None. read: the token at the read position."""

    right: Callable[[list[int]], dict[int, int]]
    every: Callable[[set[tuple[int, ...]]], str | None]
    read: int | None


def find_task(model: Model) -> Known | None:
    """Return the model's task; None if it is unknown. Raises Fault for parameters that the task does not have."""
    makers = {"histogram": _histogram, "count01": _count01, "max-of-k": _equals, "modular-addition": _equals}
    if model.task in LANGUAGES:
        return _language(model)
    return makers[model.task](model) if model.task in makers else None


def parameters_of(model: Model, **defaults: Any) -> list[Any]:
    """Return the task's parameters in the order of `defaults`."""
    values = {**defaults, **model.parameters}
    right = set(values) == set(defaults) and all(type(values[name]) is type(defaults[name]) for name in defaults)
    need(right, f"task {model.task} has the parameters {', '.join(defaults)}")
    return [values[name] for name in defaults]


def histogram(model: Model) -> tuple[int, int, bool, bool]:
    """Return T, L, whether rows begin with [BOS], and whether there is a class for count 0."""
    T, L, bos, _, zero = parameters_of(model, T=32, L=10, bos=False, sampler="published", zero_class=False)
    return whole(T, 1, 1 << 16, "T"), whole(L, 1, 64, "L"), bos, zero


def _histogram(model: Model) -> Known:
    T, L, bos, zero = histogram(model)
    need(len(model.words) == T + bos, f"words are {T} tokens{' and [BOS]' * bos}")
    need(model.spec["readout_at"] == "all", "a histogram is read at every position")

    def right(tokens: list[int]) -> dict[int, int]:
        body = tokens[bos:]
        good = len(body) == L and all(token < T for token in body) and tokens[:bos] == [T] * bos
        need(good, f"row {tokens!r:.80} is not {L} of {T} tokens{' after [BOS]' * bos}")
        return {place + bos: body.count(token) - 1 + zero for place, token in enumerate(body)}

    def every(rows: set[tuple[int, ...]]) -> str | None:
        return f"at every position of all {T}^{L} sequences" if len(rows) == T**L else None

    return Known(right, every, None)


def _equals(model: Model) -> Known:
    """Return rows of numbers and '=', at which their maximum or their sum modulo p is read."""
    if model.task == "max-of-k":
        terms, base = parameters_of(model, K=4, v=64)
    else:
        terms, base = 2, parameters_of(model, p=113, share=0.3)[0]
    terms, base = whole(terms, 1, 512, "K"), whole(base, 1, 1 << 16, "v or p")
    need(len(model.words) == base + 1 and model.n_out == base, f"words are {base} numbers and '=', outputs the numbers")
    need(model.spec["readout_at"] in ("=", "last"), "answers are read at '='")

    def right(tokens: list[int]) -> dict[int, int]:
        numbers = tokens[:-1]
        good = len(numbers) == terms and all(n < base for n in numbers) and tokens[-1] == base
        need(good, f"row {tokens!r:.80} is not {terms} numbers below {base} and '='")
        return {terms: max(numbers) if model.task == "max-of-k" else sum(numbers) % base}

    def every(rows: set[tuple[int, ...]]) -> str | None:
        return f"for all {base}^{terms} inputs" if len(rows) == base**terms else None

    return Known(right, every, base if model.spec["readout_at"] == "=" else None)


def _count01(model: Model) -> Known:
    parameters_of(model)
    need(len(model.words) == 8 and model.n_out == 8, "words are [BOS] 0 1 2 = 4 5 [EOS]")
    need(model.spec["readout_at"] == "=", "answers are read at '='")

    def right(tokens: list[int]) -> dict[int, int]:
        body = tokens[1:-1]  # nothing comes after '=', where a bidirectional model would see it
        good = len(tokens) > 1 and tokens[0] == 0 and tokens[-1] == 4 and set(body) <= {1, 2, 3}
        need(good, f"row {tokens!r:.80} is not [BOS], symbols 0, 1, 2 and '='")
        return {len(tokens) - 1: 5 if body.count(2) > body.count(1) else 6}

    return Known(right, lambda rows: None, 4)


def _language(model: Model) -> Known:
    parameters_of(model, length=20, shortest=0, test_length=0)
    ends = model.task == "palindrome"
    need(len(model.words) == 4 + ends, "words are 0, 1, [CLS], [EOS] of palindromes, and padding")
    at = model.spec["readout_at"]
    need(at in ("[CLS]", "first", "last") and model.n_out <= 2, "strings are judged at [CLS] or at the last token")

    def right(tokens: list[int]) -> dict[int, int]:
        word = tokens[1 : len(tokens) - ends]
        good = word and tokens == [CLS, *word, *[EOS] * ends] and set(word) <= {0, 1}
        need(good, f"row {tokens!r:.80} is not [CLS] and a string of 0 and 1{', then [EOS]' * ends}")
        return {len(tokens) - 1 if at == "last" else 0: int(LANGUAGES[model.task](word))}

    def every(rows: set[tuple[int, ...]]) -> str | None:
        lengths = sorted({len(row) - 1 - ends for row in rows})
        plain = lengths == list(range(lengths[0], lengths[-1] + 1))
        if not plain or len(rows) != sum(2**n for n in lengths):
            return None
        return f"on every string of {lengths[0]} to {lengths[-1]} symbols"

    return Known(right, every, CLS if at == "[CLS]" else None)
