"""Thirty-one programs as others write them: a RASP compiler's library, and a benchmark of circuits.

Each is the usual way to do it with selectors, counts by the share of [BOS], and tables (Weiss et al. 2021; Lindner et
al. 2023; Gupta et al. 2024), in the project's own language, so that `interp.compile` makes weights whose circuit is
known. [BOS] takes the attention where nothing else is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from interp.programs.language import Program
from interp.programs.steps import NEVER, Head, Linear, Step, Table, Values
from interp.programs.task import ProgramTask

BOS, PAD = "[BOS]", "pad"
OTHERWISE = -30.0
"""Score of what is attended to only where nothing else is."""
Numbers = Callable[..., float]


class Draft:
    """A program that is written step by step; each method adds a step and returns its name."""

    def __init__(
        self, content: str | Sequence[str], length: int, *, bos: bool = False, last: str = "", causal: bool = False,
        read: str = "all", shortest: int = 0,
    ) -> None:  # fmt: skip
        self.vocabulary: Values = (*content, *[BOS] * bos, *[last] * bool(last), *[PAD] * bool(shortest))
        self.length = length + bos + bool(last)
        self.causal, self.read = causal, read
        self.rows: dict[str, Any] = {"first": BOS * bos, "last": last, "shortest": shortest}
        self.steps: list[Step] = []
        self.values = {"token": self.vocabulary, "position": tuple(map(str, range(self.length))), "": ("",)}

    def head(
        self, name: str, query: str, key: str, fits: Callable[[str, str], bool] = lambda q, k: True,
        value: str = "token", otherwise: str = "",
    ) -> str:  # fmt: skip
        """Select keys that fit the query; if there is none, those that have the value `otherwise`."""
        scores = tuple(
            tuple(0.0 if fits(q, k) else OTHERWISE if k == otherwise else NEVER for k in self.values[key])
            for q in self.values[query]
        )
        return self._add(Head(name, query, key, scores, value), self.values[value])

    def even(self, name: str, value: str = "token") -> str:
        """Attend evenly to all positions that are seen."""
        return self.head(name, "", "", value=value)

    def ranked(self, name: str, key: str, order: Sequence[str], value: str) -> str:
        """Attend to the key that comes first in an order."""
        scores = tuple(-40.0 * order.index(k) if k in order else NEVER for k in self.values[key])
        return self._add(Head(name, "", key, (scores,), value), self.values[value])

    def table(self, name: str, of: Sequence[str], function: Callable[..., object]) -> str:
        """Look up the value of a function of a few variables."""
        found = [str(function(*cell)) for cell in product(*(self.values[one] for one in of))]
        values = tuple(dict.fromkeys(found))
        return self._add(Table(name, tuple(of), tuple(map(values.index, found)), values), values)

    def levels(self, name: str, of: str, weights: Numbers, limits: Sequence[float], words: Sequence[str] = ()) -> str:
        """How many limits a weighted sum of the shares of values is above."""
        words = tuple(words) or tuple(map(str, range(len(limits) + 1)))
        rows = tuple(tuple(level * weights(one) for level in range(len(words))) for one in self.values[of])
        bias = tuple(0.0 - sum(limits[:level]) for level in range(len(words)))
        return self._add(Linear(name, (of,), (rows,), bias, tuple(words)), tuple(words))

    def count(self, name: str, of: str, most: int, least: int = 0) -> str:
        """How many others there are beside [BOS], from its share 1 / (1 + n)."""
        limits = [-(1 / (1 + n) + 1 / (2 + n)) / 2 for n in range(least, most)]
        return self.levels(name, of, lambda one: -float(one == BOS), limits, [str(n) for n in range(least, most + 1)])

    def _add(self, step: Step, values: Values) -> str:
        self.steps.append(step)
        self.values[step.name] = tuple(values)
        return step.name

    def answer(self, of: str, among: Sequence[str] = ()) -> ProgramTask:
        """The value of a variable; of shares, the largest, the later one of two that are equal."""
        values = tuple(among) or self.values[of]
        weights = tuple(tuple(float(one == other) for other in values) for one in self.values[of])
        answer = Linear("answer", (of,), (weights,), tuple(0.01 * at for at in range(len(values))), values)
        pad = PAD if PAD in self.vocabulary else None
        program = Program(self.vocabulary, self.length, self.causal, tuple(self.steps), answer, self.read, pad)
        return ProgramTask(program=program.to_json(), **self.rows)


def length() -> ProgramTask:
    """How long is the row?"""
    d = Draft("ab", 6, bos=True, shortest=1)
    return d.answer(d.count("length", d.even("all"), 6, least=1))


def reverse() -> ProgramTask:
    """The row from its end to its start; all rows are of one length."""
    d = Draft("abcd", 5)
    return d.answer(d.head("turned", "position", "position", lambda q, k: int(q) + int(k) == 4))


def reverse_any() -> ProgramTask:
    """The row from its end to its start, whatever its length: it is counted first."""
    d = Draft("abc", 5, bos=True, shortest=2)
    n = d.count("length", d.even("all"), 5, least=2)
    place = d.table("place", [n, "position"], lambda n, at: int(at) and (int(n) + 1 - int(at)) % 6)
    return d.answer(d.head("turned", place, "position", lambda q, k: q == k))


def histogram() -> ProgramTask:
    """How often does the own token occur?"""
    d = Draft("abc", 5, bos=True)
    same = d.head("same", "token", "token", lambda q, k: k in (q, BOS))
    return d.answer(d.count("count", same, 5))


def double_histogram() -> ProgramTask:
    """How many positions have a token that occurs as often as the own one?"""
    d = Draft("abc", 4, bos=True)
    count = d.count("count", d.head("same", "token", "token", lambda q, k: k in (q, BOS)), 4)
    key = d.table("key", [count, "token"], lambda n, one: BOS if one == BOS else n)
    alike = d.head("alike", key, key, lambda q, k: k in (q, BOS), value=key)
    return d.answer(d.count("how many", alike, 4))


def sort() -> ProgramTask:
    """The sorted row: of equal tokens, the earlier one comes first."""
    d = Draft("0123", 4, bos=True)
    pair = d.table("pair", ["token", "position"], lambda one, at: BOS if one == BOS else one + at)
    before = d.head("before", pair, pair, lambda q, k: k == BOS or BOS != q > k, value="token")
    rank = d.count("rank", before, 3)
    place = d.table("place", [rank, "token"], lambda n, one: BOS if one == BOS else int(n) + 1)
    return d.answer(d.head("sorted", "position", place, lambda q, k: k == (BOS if q == "0" else q)))


def rank() -> ProgramTask:
    """How many tokens are smaller than the own one?"""
    d = Draft("0123", 4, bos=True)
    smaller = d.head("smaller", "token", "token", lambda q, k: k == BOS or (BOS != q > k))
    return d.answer(d.count("rank", smaller, 4))


def sort_by_frequency() -> ProgramTask:
    """The row in the order of how often its tokens occur."""
    d = Draft("abc", 4, bos=True)
    count = d.count("count", d.head("same", "token", "token", lambda q, k: k in (q, BOS)), 4)
    key = d.table("key", [count, "token", "position"], lambda n, one, at: BOS if one == BOS else n + at)
    before = d.head("before", key, key, lambda q, k: k == BOS or BOS != q > k, value="token")
    n = d.count("rank", before, 3)
    place = d.table("place", [n, "token"], lambda n, one: BOS if one == BOS else int(n) + 1)
    return d.answer(d.head("sorted", "position", place, lambda q, k: k == (BOS if q == "0" else q)))


def most_frequent() -> ProgramTask:
    """Which token occurs most often?"""
    d = Draft("abcd", 5, last="=", causal=True, read="=")
    return d.answer(d.head("content", "", "token", lambda q, k: k != "="), among="abcd")


def fraction_before() -> ProgramTask:
    """Which part of the tokens so far is a: none, less than half, half, more, or all?"""
    d = Draft("abc", 6, causal=True)
    words = ("none", "less", "half", "more", "all")
    return d.answer(d.levels("part", d.even("so far"), lambda one: float(one == "a"), (0.05, 0.45, 0.55, 0.95), words))


def _below(d: Draft, opened: str, closed: str, name: str) -> tuple[str, str]:
    """Whether brackets of a kind are balanced so far, and whether more were closed than opened at some place."""
    balance = d.levels(
        f"balance{name}", "so far", lambda one: float(one == opened) - float(one == closed), (-0.05, 0.05),
        ("below", "even", "above"),
    )  # fmt: skip
    ever = d.even(f"ever{name}", value=balance)
    return balance, d.levels(f"once{name}", ever, lambda one: float(one == "below"), (0.05,), ("never", "once"))


def dyck() -> ProgramTask:
    """Are the brackets balanced?"""
    d = Draft("()", 8, causal=True, read="last")
    d.even("so far")
    balance, once = _below(d, "(", ")", "")
    return d.answer(d.table("good", [balance, once], lambda end, low: end == "even" and low == "never"))


def shuffle_dyck() -> ProgramTask:
    """Are the brackets of two kinds balanced, each kind for itself?"""
    d = Draft("()[]", 6, causal=True, read="last")
    d.even("so far")
    kinds = [_below(d, "(", ")", " round"), _below(d, "[", "]", " square")]
    good = [
        d.table(f"good {at}", kind, lambda end, low: end == "even" and low == "never") for at, kind in enumerate(kinds)
    ]
    return d.answer(d.table("good", good, lambda one, other: one == other == "True"))


def pair_balance() -> ProgramTask:
    """Are there more ( than ) so far?"""
    d = Draft("()x", 6, causal=True)
    weight = {"(": 1.0, ")": -1.0}
    return d.answer(d.levels("balance", d.even("so far"), lambda one: weight.get(one, 0.0), (-0.05, 0.05)))


def induction() -> ProgramTask:
    """What followed the earlier places of the own token? [BOS] if there are none."""
    d = Draft("abc", 5, bos=True, causal=True)
    before = d.head("before", "position", "position", lambda q, k: int(k) == max(0, int(q) - 1))
    return d.answer(d.head("after", "token", before, lambda q, k: q == k != BOS, otherwise=BOS))


def digit_sum() -> ProgramTask:
    """The sum of three digits."""
    d = Draft("01234", 3, last="=", read="=")
    digits = [d.head(f"digit {at}", "", "position", lambda q, k, at=at: k == str(at)) for at in range(3)]  # type: ignore[misc]
    known = d.table("sum", digits, lambda *each: sum(int(one) if one != "=" else 0 for one in each))
    return d.answer(known)


def first_place() -> ProgramTask:
    """The position of the first a; [BOS] if there is none."""
    d = Draft("ab", 6, bos=True, read="first")
    here = d.table("here", ["token", "position"], lambda one, at: at if one == "a" or at == "0" else "no")
    return d.answer(d.ranked("first", here, [*"123456", "0"], here))


def count() -> ProgramTask:
    """How many a's are there?"""
    d = Draft("abc", 6, bos=True, read="first")
    return d.answer(d.count("count", d.head("a", "", "token", lambda q, k: k in ("a", BOS)), 6))


def contains() -> ProgramTask:
    """Is there an a?"""
    d = Draft("abc", 6, last="=", read="=")
    found = d.head("a", "", "token", lambda q, k: k == "a", otherwise="=")
    return d.answer(d.table("whether", [found], lambda one: one == "a"))


def parity() -> ProgramTask:
    """Is the number of 1's even?"""
    d = Draft("01", 8, bos=True, read="first")
    n = d.count("count", d.head("ones", "", "token", lambda q, k: k in ("1", BOS)), 8)
    return d.answer(d.table("parity", [n], lambda n: ("even", "odd")[int(n) % 2]))


def previous() -> ProgramTask:
    """The token before."""
    d = Draft("abcd", 5, bos=True, causal=True)
    return d.answer(d.head("before", "position", "position", lambda q, k: int(k) == max(0, int(q) - 1)))


def largest() -> ProgramTask:
    """The largest token."""
    d = Draft("01234", 4, last="=", causal=True, read="=")
    return d.answer(d.ranked("largest", "token", "43210", "token"), among="01234")


def bigram() -> ProgramTask:
    """Is this the b of an "ab"?"""
    d = Draft("abc", 6, causal=True)
    before = d.head("before", "position", "position", lambda q, k: int(k) == max(0, int(q) - 1))
    return d.answer(d.table("whether", ["token", before], lambda one, last: (last, one) == ("a", "b")))


def palindrome() -> ProgramTask:
    """Is the row the same from its end to its start?"""
    d = Draft("abc", 6, read="first")
    turned = d.head("turned", "position", "position", lambda q, k: int(q) + int(k) == 5)
    other = d.table("other", ["token", turned], lambda one, two: "same" if one == two else "other")
    return d.answer(d.levels("any", d.even("all", other), lambda one: float(one == "other"), (0.05,), ("yes", "no")))


def ends() -> ProgramTask:
    """Are the first and the last token the same?"""
    d = Draft("abc", 6, causal=True, read="last")
    first = d.head("first", "", "position", lambda q, k: k == "0")
    return d.answer(d.table("same", ["token", first], lambda one, two: one == two))


def ordered() -> ProgramTask:
    """Is no token smaller than the one before?"""
    d = Draft("0123", 5, causal=True, read="last")
    before = d.head("before", "position", "position", lambda q, k: int(k) == max(0, int(q) - 1))
    down = d.table("down", ["token", before], lambda one, last: "down" if one < last else "up")
    return d.answer(d.levels("any", d.even("all", down), lambda one: float(one == "down"), (0.05,), ("yes", "no")))


def majority() -> ProgramTask:
    """Are there more 1's than 0's?"""
    d = Draft("01", 9, last="=", causal=True, read="=")
    weight = {"1": 1.0, "0": -1.0}
    return d.answer(d.levels("more", d.even("all"), lambda one: weight.get(one, 0.0), (0.0,), ("no", "yes")))


def pattern() -> ProgramTask:
    """Has "abc" occurred so far?"""
    d = Draft("abc", 6, causal=True)
    one, two = (
        d.head(f"{n} before", "position", "position", lambda q, k, n=n: int(k) == max(0, int(q) - n))  # type: ignore[misc]
        for n in (1, 2)
    )
    here = d.table("here", ["token", one, two], lambda *each: "yes" if each == ("c", "b", "a") else "no")
    return d.answer(d.levels("once", d.even("all", here), lambda one: float(one == "yes"), (0.05,), ("no", "yes")))


def pairs() -> ProgramTask:
    """How often does "ab" occur?"""
    d = Draft("abc", 6, bos=True, causal=True, read="last")
    before = d.head("before", "position", "position", lambda q, k: int(k) == max(0, int(q) - 1))
    here = d.table(
        "here", ["token", before], lambda one, last: BOS if one == BOS else "ab" if (last, one) == ("a", "b") else "no"
    )
    return d.answer(d.count("count", d.head("found", "", here, lambda q, k: k in ("ab", BOS), value=here), 3))


def after_last() -> ProgramTask:
    """What follows the last a? [BOS] if nothing does."""
    d = Draft("abc", 5, bos=True, causal=True, read="last")
    before = d.head("before", "position", "position", lambda q, k: int(k) == max(0, int(q) - 1))
    here = d.table("here", [before, "position"], lambda last, at: at if last == "a" or at == "0" else "no")
    return d.answer(d.ranked("last", here, "543210", "token"))


def difference() -> ProgramTask:
    """The first number minus the last, modulo 5."""
    d = Draft("01234", 3, last="=", read="=")
    first, last = (d.head(f"number {at}", "", "position", lambda q, k, at=at: k == at) for at in "02")  # type: ignore[misc]
    return d.answer(
        d.table("less", [first, last], lambda one, two: "=" not in (one, two) and (int(one) - int(two)) % 5)
    )


def seen_before() -> ProgramTask:
    """The token, or "again" if it has occurred before."""
    d = Draft("abc", 5, bos=True, causal=True)
    n = d.count("count", d.head("same", "token", "token", lambda q, k: k in (q, BOS)), 5)
    return d.answer(d.table("new", [n, "token"], lambda n, one: one if int(n) < 2 else "again"))


PROGRAMS: dict[str, Callable[[], ProgramTask]] = {
    one.__name__.replace("_", " "): one
    for one in (
        length, reverse, reverse_any, histogram, double_histogram, sort, rank, sort_by_frequency, most_frequent,
        fraction_before, dyck, shuffle_dyck, pair_balance, induction, digit_sum, first_place, count, contains, parity,
        previous, largest, bigram, palindrome, ends, ordered, majority, pattern, pairs, after_last, difference,
        seen_before,
    )
}  # fmt: skip
"""The programs, by name."""
