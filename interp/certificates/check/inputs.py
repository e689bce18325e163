"""Check claims by running inputs: every one of a table, or strings of 0 and 1, at least one of each class."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import comb
from operator import add
from typing import Any

from .enclosures import REALS, Vec, fixed
from .layer import attend, drifts
from .model import Model
from .reading import fields, listed, need, whole, wholes
from .tasks import CLS, EOS, LANGUAGES, Known, find_task, parameters_of

Spread = Callable[..., list[Any]]
"""Functions (work, items) -> [work(*item) for item in items], possibly in several processes."""
WEAKER = "agrees with"
"""The start of a sentence whose right answers come from the file."""
Found = tuple[str, int]
"""The proved sentence, without its margin, and a bound on the rounding of a difference of two outputs."""


def is_right(model: Model, out: Vec, answers: Sequence[int], margin: int) -> bool:
    """Test whether a right output exceeds all others by the margin. Raises Fault if this is not certain."""
    bounds = list(out.ends())
    if model.spec["decision"] == "sigmoid":  # yes if the output is positive
        bounds = [(0, 0), bounds[0]]
    elif model.spec["decision"] == "indicator":  # yes if |output| is at most the tolerance
        edge = fixed(model.spec["tolerance"], "tolerance")
        bounds = [(max(0, abs(out.mid[0]) - out.rad[0]), abs(out.mid[0]) + out.rad[0]), (edge, edge)]
    others = [j for j in range(len(bounds)) if j not in answers]
    need(answers and others and max(answers) < len(bounds), f"answers {answers} are none or all of the outputs")
    if max(bounds[j][0] for j in answers) - max(bounds[j][1] for j in others) >= margin:
        return True
    apart = max(bounds[j][0] for j in others) - max(bounds[j][1] for j in answers)
    need(apart >= margin, f"the answers {answers} are neither right nor wrong by the margin")
    return False


def inputs(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Run every input of a table. parts: per input [tokens, [[position, right outputs], ...]]."""
    token, errors = fields(domain, "read errors", "claim.domain")
    at, seen, task = model.spec["readout_at"], set(), find_task(model)
    need(token is None or whole(token, 0, len(model.words) - 1, "read") >= 0, "")
    need(at not in ("all", "first", "last") or token is None, f"answers are read at {at!r:.40}, not at a token")
    need(task is None or token == task.read, f"task {model.task} is not read at token {token}")
    for part in listed(parts, "parts"):
        tokens, reads = listed(part, "a part", 2)
        need(wholes(tokens, 0, len(model.words) - 1, "a token"), "a row is empty")
        seen.add(tuple(tokens))
        places = [whole(listed(item, "a read", 2)[0], 0, len(tokens) - 1, "a place") for item in listed(reads, "reads")]
        need(places and sorted(set(places)) == places, "places must ascend")
        need(all(sorted(set(wholes(item[1], 0, 1 << 24, "an answer"))) == item[1] for item in reads), "answers ascend")
        if at != "all":
            expected = {"first": 0, "last": len(tokens) - 1}.get(at)
            expected = tokens.index(token) if expected is None and token in tokens else expected
            need(places == [expected], f"row {tokens!r:.80} is not read where its answer stands")
        if task is not None:
            wanted = [[place, [answer]] for place, answer in sorted(task.right(tokens).items())]
            need(reads == wanted, f"what is right in row {tokens!r:.80} is {wanted!r:.200}, not what the file says")
    need(parts and len(seen) == len(parts), "an input occurs twice, or there is none")
    results = spread(partial(one_input, model, margin), parts)
    wrong = [[i, place] for i, (places, _) in enumerate(results) for place in places]
    need(errors == wrong, f"wrong answers are {wrong[:9]}, not as claimed")
    return sentence(model, token, parts, len(wrong), task), max(rounding for _, rounding in results)


def sentence(model: Model, token: int | None, parts: list[Any], wrong: int, task: Known | None) -> str:
    """Return the claim about a table of inputs; it says "right" only for a known task and a whole domain."""
    answers, most = sum(len(part[1]) for part in parts), max(len(item[1]) for part in parts for item in part[1])
    rows = {tuple(part[0]) for part in parts}
    if task is not None and (every := task.every(rows)) is not None:
        claim = f"{model.task}: right {every}, {len(rows)} inputs, rows without padding"
        return claim + (f" but exactly {wrong} of {answers} answers, which are wrong" if wrong else "")
    where = "rows without padding" + ("" if token is None else f", read at token {token}")
    if task is not None:
        return (f"{model.task}: {wrong} of {answers} answers are wrong in {len(rows)} chosen inputs, {where}, and "
                "nothing is said of any other input")  # fmt: skip
    digest = hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
    several = f", up to {most} outputs for one" if most > 1 else ""
    but = f" but exactly {wrong} of {answers} answers, which differ" if wrong else ""
    return (f"{WEAKER} the table of labels of SHA-256 {digest} that came with this file, named {model.task}: in each "
            f"of its {len(rows)} inputs, {where}, by the {answers} answers that it gives{several}{but}")  # fmt: skip


def said_of(task: str, is_known: bool, said: str) -> str:
    """Return a sentence about a known task, or about a rule that the file calls by this name."""
    return f"{task}: {said}" if is_known else f"{WEAKER} the rule that came with this file, named {task}: {said}"


def one_input(model: Model, margin: int, tokens: list[int], reads: list[Any]) -> tuple[list[int], int]:
    """Return the positions with a wrong answer, and the rounding bound."""
    outs = model.forward(tokens, [place for place, _ in reads])
    wrong = [place for (place, answers), out in zip(reads, outs) if not is_right(model, out, answers, margin)]
    return wrong, 2 * max(max(out.err) for out in outs)


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
    need(not any(layer.linear or layer.places for layer in model.layers), "positions differ within a class")
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
    results = spread(
        partial({"string": each_string, "class": one_class, "average": one_average}[by], model, margin), work
    )
    for (n, _), (many, bad, moved) in zip(work, results):
        totals[n], wrong[n], rounding = totals[n] + many, wrong[n] + bad, max(rounding, moved)
    need(totals == {n: 2**n for n in totals}, "strings are left out")
    where = [[n, bad] for n, bad in wrong.items() if bad]
    need(errors == where, f"errors are {where[:20]}, not as claimed")
    claim = f"{model.task}: right on every string of 1 to {longest} symbols, {2 ** (longest + 1) - 2} strings"
    claim += ", rows without padding"
    if where:
        each = "; ".join(f"{n} symbols: {bad}" for n, bad in where)
        claim += f" but exactly {sum(bad for _, bad in where)}, on which it errs ({each})"
    return claim, rounding


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
