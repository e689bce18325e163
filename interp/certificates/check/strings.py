"""Check claims about every string of 0 and 1 up to a length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import comb
from operator import add
from typing import Any

from .attention import attend, drifts
from .enclosures import REALS, Vec
from .inputs import Found, Spread, is_right, one_input
from .model import Model
from .reading import fields, need, whole
from .tasks import CLS, EOS, LANGUAGES, parameters_of


def strings(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Check every string up to a length: by running each, or one per first symbol and number of ones.

    by "string": each is run. "class": equal tokens have equal rows, except for the first, so one string per class is
    run. "average": layer 1 gives all pairs the same score, so its output is a mean that depends only on the class; a
    later row is one of two, and bounds cover both.
    """
    longest, by, errors = fields(domain, "longest by errors", "claim.domain")
    whole(longest, 1, 1000, "longest")
    need(by in ("string", "class", "average") and parts == [], "strings are taken by string, class or average")
    need(model.task in LANGUAGES, f"no strings are known of task {model.task!r:.40}")
    parameters_of(model, length=20, shortest=0, test_length=0)
    ends = model.task == "palindrome"
    need(len(model.words) == 4 + ends, "words are 0, 1, [CLS], [EOS] of palindromes, and padding")
    need(model.spec["readout_at"] == "[CLS]" and model.spec["decision"] != "argmax", "strings are judged at [CLS]")
    need(
        by == "string" or not (model.causal or ends),
        "palindromes, and the answers of causal models, do not form classes",
    )
    need(by != "class" or model.spec["positions"] in ("none", "first"), "positions differ within a class")
    layer = model.layers[0]
    need(not any(one.linear or one.places for one in model.layers), "positions differ within a class")
    need(by != "average" or layer.spec["norm"] != "pre", "values are not linear in a row that is normalized before")
    if by == "average":
        blank = all(q.blank or k.blank for q, k in zip(layer.q, layer.k))
        need(blank and layer.softmax and model.places is None, "layer 1 does not score all pairs alike")
    work: list[tuple[int, list[int]]] = []
    rounding, wrong = 0, dict.fromkeys(range(1, longest + 1), 0)
    for n in range(1, longest + 1):
        if by == "string":
            need(longest <= 20, "there are too many strings to run each")
            work += [(n, list(start)) for start in product((0, 1), repeat=min(n, 6))]
        else:
            work += [(n, [first, *[1] * ones]) for first in (0, 1) for ones in range(n)]
    totals = dict.fromkeys(range(1, longest + 1), 0)
    found = spread(
        partial({"string": each_string, "class": one_class, "average": one_average}[by], model, margin), work
    )
    for (n, _), (many, bad, moved) in zip(work, found):
        totals[n], wrong[n], rounding = totals[n] + many, wrong[n] + bad, max(rounding, moved)
    need(totals == {n: 2**n for n in totals}, "strings are left out")
    where = [[n, bad] for n, bad in wrong.items() if bad]
    need(errors == where, f"errors are {where[:20]}, not as claimed")
    said = f"{model.task}: right on every string of 1 to {longest} symbols, {2 ** (longest + 1) - 2} strings"
    said += ", rows without padding"
    if where:
        each = "; ".join(f"{n} symbols: {bad}" for n, bad in where)
        said += f" but exactly {sum(bad for _, bad in where)}, on which it errs ({each})"
    return said, rounding


def each_string(model: Model, margin: int, n: int, start: list[int]) -> tuple[int, int, int]:
    """Run all strings with this start; return their number, the number of wrong ones, and the rounding bound."""
    total = bad = moved = 0
    for rest in product((0, 1), repeat=n - len(start)):
        word = [*start, *rest]
        wrong, rounding = one_input(
            model, margin, [CLS, *word, *[EOS] * (model.task == "palindrome")],
            [[0, [int(LANGUAGES[model.task](word))]]],
        )  # fmt: skip
        total, bad, moved = total + 1, bad + len(wrong), max(moved, rounding)
    return total, bad, moved


def one_class(model: Model, margin: int, n: int, start: list[int]) -> tuple[int, int, int]:
    word = start + [0] * (n - len(start))
    wrong, rounding = one_input(model, margin, [CLS, *word], [[0, [int(LANGUAGES[model.task](word))]]])
    size = comb(n - 1, len(start) - 1)
    return size, size * len(wrong), rounding


def one_average(model: Model, margin: int, n: int, start: list[int]) -> tuple[int, int, int]:
    word, layer, f = start + [0] * (n - len(start)), model.layers[0], model.f
    rows = [[model.embed(t, i, n + 1) for t in ((0, 1) if i > 1 else ((CLS, *word)[i],))] for i in range(n + 1)]
    chosen = [choice[-1] if i and word[i - 1] else choice[0] for i, choice in enumerate(rows)]
    zero, z = Vec.exact([0] * (n + 1)), Vec((), (), ())
    for h in range(layer.heads):  # values are linear in rows, and rows in the symbol, so the mean is the same
        values = [[layer.value(h, layer.normed(row)) for row in choice] for choice in rows]
        first = attend(zero, [layer.value(h, layer.normed(row)) for row in chosen], True, REALS)
        sizes = zip(*(zip(v.sizes(), v.err) for choice in values for v in choice))
        z = Vec(*map(add, z, (first.mid, first.rad, tuple(drifts(zero, sizes, n + 1, True, f)))))
    after = [hull([layer.after(row, z) for row in choice]) for choice in (rows if model.layers[1:] else rows[:1])]
    for later in model.layers[1:]:
        after = later.run(after, range(n + 1) if later is not model.layers[-1] else [0])
    out, size = model.read(after[0]), comb(n - 1, len(start) - 1)
    right = is_right(model, out, [int(LANGUAGES[model.task](word))], margin)
    return size, 0 if right else size, 2 * max(out.err)


def hull(rows: Sequence[Vec]) -> Vec:
    low = [min(m - r for m, r in pairs) for pairs in zip(*(zip(row.mid, row.rad) for row in rows))]
    high = [max(m + r for m, r in pairs) for pairs in zip(*(zip(row.mid, row.rad) for row in rows))]
    return rows[0] if len(rows) == 1 else Vec.between(low, high, map(max, zip(*(row.err for row in rows))))
