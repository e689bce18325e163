"""Check claims about boxes of three token counts, and about the largest of K numbers for all v^K inputs.

Both are about one layer at one query row: an output is a constant plus, per head, a weighted mean of the rows' logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from operator import add, mul
from typing import Any, NamedTuple

from .enclosures import ONE, P, Vec, about, ceil_div, up
from .inputs import Found, Spread, said_of
from .layer import weights_of
from .model import Model
from .reading import fields, listed, need, whole, wholes
from .tasks import parameters_of

MOST_NODES = 10**7
"""Largest number of parts for one maximum and its first position."""


class Zone(NamedTuple):
    """Inputs with low[i] <= x_i <= high[i] for x = (n0, n1, n2, n1 - n0)."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    def cut(self, axis: int, at: int) -> tuple[Zone, Zone]:
        """Split into x_axis <= at and x_axis > at."""
        need(self.low[axis] <= at < self.high[axis], f"a part is cut at {at}, outside it")
        first = (*self.high[:axis], at, *self.high[axis + 1 :])
        second = (*self.low[:axis], at + 1, *self.low[axis + 1 :])
        return Zone(self.low, first), Zone(second, self.high)

    def corners(self) -> list[tuple[int, int, int, int]]:
        """Return the vertices, with a leading 1. They are integers: n0, n1 or n1 - n0 is constant on each side."""
        (a, c, e, p), (b, d, g, q) = self.low, self.high
        points = {(x, y) for x in (a, b) for y in (c, d)} | {(x, x + z) for x in (a, b) for z in (p, q)}
        points |= {(y - z, y) for y in (c, d) for z in (p, q)}
        inside = [(x, y) for x, y in points if a <= x <= b and c <= y <= d and p <= y - x <= q]
        return [(1, x, y, z) for x, y in inside for z in {e, g}]

    def inputs(self) -> Iterator[tuple[int, int]]:
        """Yield each difference n1 - n0 with its number of inputs."""
        (a, c, e, p), (b, d, g, q) = self.low, self.high
        for z in range(p, q + 1):
            if (pairs := min(b, d - z) - max(a, c - z) + 1) > 0:
                yield z, pairs * (g - e + 1)


class Asked(NamedTuple):
    """One layer for one query row.

    An output is base plus, per head, the mean of logits over the visible rows, weighted by the softmax of scores.
    logits and base are within rad of the real numbers.
    """

    scores: list[Vec]
    logits: list[list[tuple[int, ...]]]
    base: tuple[int, ...]
    rad: int


def asked_by(model: Model, query: Vec, rows: Sequence[Vec], **also: Any) -> Asked:
    """Return the outputs of one layer with a linear readout for one query row."""
    free = dict.fromkeys(("n_heads", "scale", "query_key", "value_output", "bias", "norm_eps", "readout_at"))
    layer = model.require(**{**free, "readout_bias": (True, False), "norm": ("none", "pre"), **also})
    need(layer.spec["norm"] == "pre" or layer.ln1 is None, "layer norm")
    all_scores, all_logits, rad = [], [], 0
    nothing = Vec.exact([0] * len(layer.o.full[0]))
    base = model.read(layer.after(query, nothing))
    for h in range(layer.heads):
        all_scores.append(layer.scores(h, query, rows, 0))
        logits = []
        for value in (layer.value(h, layer.normed(row)) for row in rows):
            at = h * len(value.mid)
            z = Vec(*(x[:at] + y + x[at + len(y) :] for x, y in zip(nothing, value)))
            out = model.read(layer.after(query, z))
            logits.append(tuple(a - b for a, b in zip(out.mid, base.mid)))
            rad = max(rad, max(map(add, out.rad, base.rad)))
        all_logits.append(logits)
    return Asked(all_scores, all_logits, base.mid, max(rad, *base.rad))


Head = tuple[tuple[int, ...], tuple[int, ...]]
"""Coefficients of (1, n0, n1, n2) in the denominator and, times 2^P, in the numerator."""


def least(zone: Zone, offset: int, heads: Sequence[Head]) -> int:
    """Return a lower bound on offset + sum over heads of N / D on a zone, where N and D > 0 are affine in the counts.

    A single quotient is smallest at a corner. For a sum, N / D = F + (N - F D) / D0 - (N - F D)(D - D0) / (D D0) for
    any F and D0. The middle term is affine, so its sum over heads is smallest at a corner; the last term is small.
    """
    corners = zone.corners()
    need(corners, "a part holds no inputs")
    alone, affine, rest = 0, [0] * len(corners), 0
    for weights, values in heads:
        ds = [sum(map(mul, weights, corner)) for corner in corners]
        ns = [sum(map(mul, values, corner)) for corner in corners]
        alone += min(n // d for n, d in zip(ns, ds))
        middle = sum(ds) // len(ds)
        slope = sum(ns) // sum(ds)
        bends = [n - slope * d for n, d in zip(ns, ds)]
        affine = [total + slope + bend // middle for total, bend in zip(affine, bends)]
        far = max(abs(d - middle) for d in ds)
        rest += ceil_div(max(map(abs, bends)) * far, min(ds) * middle)
    return offset + max(alone, min(affine) - rest)


def counts(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Check a claim about one causal layer without positions, whose outputs depend only on token counts.

    parts: a tree of cuts [axis, at] of the box. A leaf is null if the right output is the largest there; otherwise it
    is an output that exceeds the right one.
    """
    box, counted, marks, token, answers, errors = fields(
        domain, "box counted marks read answers errors", "claim.domain"
    )
    (a, b), (c, d), (e, g) = sides = [wholes(side, 0, 10**6, "a count", 2) for side in listed(box, "box", 3)]
    need(all(low <= high for low, high in sides), "a side of the box is empty")
    words = len(model.words) - 1
    wholes(counted, 0, words, "a counted token", 3), wholes(marks, 0, words, "a mark")
    wholes(answers, 0, model.n_out - 1, "an answer", 2), whole(token, 0, words, "read")
    need(len(set(counted)) == 3 and answers[0] != answers[1], "tokens and answers must differ")
    need(token in marks and not set(counted) & set(marks), "the token that is read is a mark, and no mark is counted")
    known = ([1, 2, 3], [0, 4], 4, [5, 6], "=")
    at = model.spec["readout_at"]
    if model.task == "count01":
        parameters_of(model)
        need((counted, marks, token, answers, at) == known, "Count01 has other tokens")
    need(at not in ("all", "first"), f"answers are read at {at!r}, not after what is counted")
    rows = [model.words[t] for t in (*counted, *marks)]
    asked = asked_by(model, model.words[token], rows)
    slack, weights = 4 * asked.rad, [weights_of(scores, softmax=True) for scores in asked.scores]
    for bounds, logits in zip(weights, asked.logits):
        need(min(low for low, _ in bounds) > 0, "the bound on an attention weight is not above 0")
        relative = max(ceil_div((high - low + 1) << P, low) for low, high in bounds)
        need(relative < ONE >> 4, "the bounds on attention weights are too wide")
        slack += up(16 * relative * max(abs(x) for row in logits for x in row)) + 4 * asked.rad + 4

    heads = {(i, j): [head_of(bounds, logits, i, j) for bounds, logits in zip(weights, asked.logits)]
             for i, j in product(range(model.n_out), repeat=2) if i != j and {i, j} & set(answers)}  # fmt: skip
    root = Zone((a, c, e, c - b), (b, d, g, d - a))
    stack, leaves = [root], []
    for item in listed(parts, "parts"):
        need(stack, "there are more parts than the cuts make")
        zone = stack.pop()
        if type(item) is list:
            axis, at = wholes(item, -(10**6), 10**6, "a cut", 2)
            stack += reversed(zone.cut(whole(axis, 0, 3, "an axis"), at))
        else:
            need(item is None or whole(item, 0, model.n_out - 1, "an output") >= 0, "")
            leaves.append((zone, item))
    need(not stack, "a part of the domain is left out")
    spread(partial(count_part, heads, asked.base, slack + margin, answers), leaves)
    wrong: dict[int, int] = {}
    for zone, item in leaves:
        for z, n in zone.inputs() if item is not None else ():
            wrong[z] = wrong.get(z, 0) + n
    seen = sum(n for zone, _ in leaves for _, n in zone.inputs())
    total = (b - a + 1) * (d - c + 1) * (g - e + 1)
    need(seen == total == sum(n for _, n in root.inputs()), f"the parts hold {seen} inputs, the domain {total}")
    need(errors == [[z, wrong[z]] for z in sorted(wrong)], f"errors are {sorted(wrong.items())[:9]}, not as claimed")
    claim = sentence(model.task, domain, root)
    return claim, model.drift(model.words[token], rows, b + d + g + len(marks))


def sentence(task: str, domain: dict[str, Any], root: Zone) -> str:
    """Return the claim about a box of counts, with the full rule; for unknown tasks the rule comes from the file."""
    (a, b), (c, d), (e, g) = domain["box"]
    total, sizes = (b - a + 1) * (d - c + 1) * (g - e + 1), dict(root.inputs())
    read, marks, counted, (first, second) = (domain[name] for name in ("read", "marks", "counted", "answers"))
    claim = (f"at token {read}, which sees {marks} and n0, n1, n2 times {counted}, the largest output is {first} "
             f"where n1 > n0, else {second}, on every one of {total} inputs "
             f"(n0 in {a}..{b}, n1 in {c}..{d}, n2 in {e}..{g})")  # fmt: skip
    if domain["errors"]:
        places = "; ".join(f"n1 - n0 = {z}: {n} of {sizes[z]}" for z, n in domain["errors"])
        claim += f" but exactly {sum(n for _, n in domain['errors'])}, on which it is not ({places})"
    return said_of(task, task == "count01", claim)


def head_of(bounds: Sequence[tuple[int, int]], logits: Sequence[Sequence[int]], i: int, j: int) -> Head:
    """Return a head's contribution to the difference of two outputs; each mark occurs once."""
    weights = [(low + high) >> 1 for low, high in bounds]
    terms = [w * (row[i] - row[j]) for w, row in zip(weights, logits)]
    return (sum(weights[3:]), *weights[:3]), (sum(terms[3:]), *terms[:3])


def count_part(
    heads: dict[tuple[int, int], list[Head]],
    base: Sequence[int],
    wanted: int,
    answers: list[int],
    zone: Zone,
    item: Any,
) -> None:
    """Check one part: it is right (item is None), or wrong because output `item` exceeds the right one."""
    need(zone.high[3] <= 0 or zone.low[3] >= 1, f"a part holds inputs of both answers: {zone}")
    right = answers[0 if zone.low[3] >= 1 else 1]
    pairs = [(i, j) for i, j in heads if i == right] if item is None else [(item, right)]
    need(item != right, "the right answer is not an error")
    for i, j in pairs:
        lead = least(zone, base[i] - base[j], heads[i, j])
        need(lead >= wanted, f"output {i} exceeds {j} by {about(lead)} at least, {about(wanted)} is wanted")


def maxima(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Check a claim about max-of-k: at '=', one head averages the values of K numbers and '='.

    A difference of outputs minus the margin, times the sum of weights, is a sum over positions. So it is smallest if
    every position has its worst number. Inputs are grouped by their maximum and its first position, then by single
    numbers.
    """
    (errors,) = fields(domain, "errors", "claim.domain")
    need(model.task == "max-of-k" and set(model.parameters) <= {"K", "v"} and parts == [], "maxima are for max-of-k")
    K, v = (whole(model.parameters.get(name, size), 1, 512, name) for name, size in (("K", 4), ("v", 64)))
    need(len(model.words) == v + 1 and model.n_out == v, "words are v numbers and '='")
    need(model.longest in (None, K + 1), "positions are for K numbers and '='")
    need(model.spec["readout_at"] in ("=", "last"), "answers are read at '='")
    wrong, rounding = errors_of_maxima(model, K, v, margin, spread)
    need(errors == wrong, f"errors are {wrong[:9]}, not as claimed")
    return maxima_sentence(K, v, wrong), rounding


def maxima_sentence(K: int, v: int, wrong: list[list[int]]) -> str:
    claim = f"max-of-k: at '=' the largest of {K} numbers below {v} has the largest output, for all {v}^{K} inputs"
    if not wrong:
        return claim
    places = "; ".join(f"largest {m}: {n} of {(m + 1) ** K - m**K}" for m, n in wrong)
    return claim + f" but exactly {sum(n for _, n in wrong)}, for which it has not ({places})"


def errors_of_maxima(model: Model, K: int, v: int, margin: int, spread: Spread) -> tuple[list[list[int]], int]:
    """Return each maximum that has wrong inputs with the number of these, and the rounding bound."""
    rows = [model.embed(t, i, K + 1) for i in range(K) for t in range(v)] + [model.embed(v, K, K + 1)]
    asked = asked_by(model, rows[-1], rows, n_heads=(1,), positions=("none", "learned"), max_length=(None, K + 1))
    n_wrong = spread(partial(one_maximum, asked, K, v, margin), [(m, at) for m in range(v) for at in range(K)])
    wrong = [[m, n] for m in range(v) if (n := sum(n_wrong[m * K : m * K + K]))]
    return wrong, model.drift(rows[-1], rows, K + 1)


def one_maximum(asked: Asked, K: int, v: int, margin: int, m: int, at: int) -> int:
    """Return the number of wrong inputs whose maximum m occurs first at position `at`."""

    allowed = [p * v + t for p in range(K) for t in range(m + 1)] + [K * v]
    scores = Vec(*(tuple(part[row] for row in allowed) for part in asked.scores[0]))
    weights = dict(zip(allowed, weights_of(scores, softmax=True)))

    def share(row: int, i: int, j: int) -> int:
        """Return a lower bound on a row's term in (output i - output j - margin) times the sum of weights."""
        logits = asked.logits[0][row]
        more = logits[i] - logits[j] + asked.base[i] - asked.base[j] - 4 * asked.rad - margin
        return min(bound * more for bound in weights[row])

    free = [p for p in range(K) if p != at]
    choices = [range(m if p < at else m + 1) for p in free]
    rivals = [j for j in range(v) if j != m]
    fixed_rows = (at * v + m, K * v)
    tables = [[[share(p * v + t, m, j) for j in rivals] for t in choice] for p, choice in zip(free, choices)]
    if not all(choices):
        return 0
    below = [[0] * len(rivals)]  # the smallest sums over the remaining positions
    for table in reversed(tables):
        below.append(list(map(add, below[-1], map(min, zip(*table)))))
    below.reverse()
    first: list[int] = []
    stack = [(first, [sum(share(row, m, j) for row in fixed_rows) for j in rivals])]
    wrong = nodes = 0
    while stack:
        chosen, sums = stack.pop()
        nodes += 1
        need(nodes < MOST_NODES, f"largest {m}: too many parts")
        if all(total + rest >= 0 for total, rest in zip(sums, below[len(chosen)])):
            continue
        if len(chosen) < len(free):
            table = tables[len(chosen)]
            stack += [([*chosen, t], list(map(add, sums, table[t]))) for t in choices[len(chosen)]]
            continue
        seen = (*fixed_rows, *(p * v + t for p, t in zip(free, chosen)))
        worst = any(sum(share(row, j, m) for row in seen) >= 0 for j in rivals)
        need(worst, f"numbers {chosen} beside {m}: neither right nor wrong by the margin")
        wrong += 1
    return wrong
