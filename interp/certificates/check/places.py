"""Check that a one-layer model is right at every read position of rows that an automaton reads.

Rows contain the right answers before each read position. By induction, the model then generates all answers right.

A head's output is a mean of values, sum_j w_j v_j / sum_j w_j; w_j and v_j depend on the token at place j. A coordinate
c is at least m on all inputs of a set if sum_j w_j (c_j - m) >= 0 on each. The least such sum over all paths of the
automaton is found by dynamic programming over (place, state). It is concave in m, so between two grid values of m it
lies above its chord. The set is then propagated through the rest of the model. If the right output does not lead by the
margin, the set is split by the token at one more place.

The file gives the order in which places are split and the coordinates of the values. They affect only the speed. The
splits made here cover all inputs by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from operator import add, mul
from typing import Any, NamedTuple

from .decoder import Decoder
from .enclosures import P, exp_between, fixed
from .forms import Columns, F, Form, activated, added, lead, product, rms
from .inputs import Found, Spread
from .model import Model
from .reading import fields, hexadecimal, listed, need, whole, wholes
from .tasks import parameters_of

GRID = 12
"""Number of intervals between the values of m, evenly spaced from the smallest to the largest coordinate."""
Table = list[list[int]]


class Rows(NamedTuple):
    """How an automaton reads rows of one length.

    order: the position read at each place. steps: per place, its steps (state, token, next state). reads: per read
    position, the number of places after which the answer is determined, and the right output by state. claim: the
    sentence about all rows.
    """

    order: tuple[int, ...]
    steps: tuple[tuple[tuple[int, int, int], ...], ...]
    reads: dict[int, tuple[int, Callable[[int], int]]]
    claim: str


def addition(model: Model) -> Rows:
    """Make rows of two numbers and the digits of their sum, least digit first, without the last digit of the sum.

    The state is the carry plus the digits read so far at one digit place; after that place's digit of the sum, it is
    the new carry.
    """
    base, digits, order, answer_order, lead_mark, plus, equals, end, _ = parameters_of(
        model,
        base=10,
        digits=10,
        order="least",
        answer_order="least",
        lead="",
        plus="+",
        equals="=",
        end="",
        chains=0.0,
    )
    base, digits = whole(base, 2, 64, "base"), whole(digits, 1, 40, "digits")
    need(
        order in ("least", "most") and answer_order == "least" and end == "", "sums begin with the least digit, and end"
    )
    numerals = [*map(str, range(base))]
    # Several digits are that many tokens, unless they are one digit of a base above 10.
    marks = [
        [*mark] if not mark or (mark not in numerals and set(mark) <= set(numerals)) else [mark]
        for mark in (lead_mark, plus, equals)
    ]
    words = dict.fromkeys([*numerals, *(word for mark in marks for word in mark)])
    ids = {word: index for index, word in enumerate(words)}
    need(not any(map(str.isspace, "".join(ids))), "a mark holds a space")
    need(len(model.words) == len(ids), f"words are {base} digits and the marks")
    fixed: dict[int, int] = {}
    at, starts = 0, []
    for mark, length in zip(marks, (digits, digits, 0)):
        for word in mark:
            fixed[at] = ids[word]
            at += 1
        starts.append(at)
        at += length
    numbers = list(range(digits)) if order == "least" else list(range(digits))[::-1]
    places, reads = list(fixed), {}
    steps: list[tuple[tuple[int, int, int], ...]] = [((0, token, 0),) for token in fixed.values()]
    states = {0}  # carries
    for digit in range(digits + 1):
        if digit < digits:
            for start in starts[:2]:
                places.append(start + numbers[digit])
                steps.append(tuple((s, t, s + t) for s in sorted(states) for t in range(base)))
                states = {then for _, _, then in steps[-1]}
        reads[at - 1 + digit] = (len(places), lambda state: state % base)
        if digit < digits:  # no row contains the last one
            places.append(at + digit)
            steps.append(tuple((s, s % base, s // base) for s in sorted(states)))
            states = {then for _, _, then in steps[-1]}
    need(sorted(places) == list(range(at + digits)), "every position of a row is read once")
    every = f"right on all {base ** (2 * digits):,} pairs of numbers of {digits} digits in base {base}"
    return Rows(tuple(places), tuple(steps), reads, f"{every}, every digit of their sums where it is generated")


AUTOMATA: dict[str, Callable[[Model], Rows]] = {"addition": addition}


def places(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Check a claim. parts: per read position, the position, the places in the order in which they are split, and per
    head the matrix from its values to coordinates."""
    fields(domain, "", "claim.domain")
    need(not model.f.bits, "this kind of claim is about real numbers only")
    need(model.task in AUTOMATA, f"task {model.task!r:.60} has no automaton that this checker knows")
    rows, held = AUTOMATA[model.task](model), model.as_decoder().places
    need(model.longest is None or whole(model.longest, 1, 1 << 20, "max_length"), "")
    need(held is None or len(held) == model.longest, "there is not one row for each position")
    need(model.longest is None or len(rows.order) <= model.longest, "a row is longer than the model's positions")
    splits = {whole(at, 0, len(rows.order) - 1, "a position"): (order, bases)
              for at, order, bases in (listed(part, "a part", 3) for part in listed(parts, "parts"))}  # fmt: skip
    need(len(splits) == len(parts) and sorted(splits) == sorted(rows.reads), "a position that is read is left out")
    work = []
    for at, (order, bases) in splits.items():
        free = [place for place, position in enumerate(rows.order) if position < at]
        need(sorted(wholes(order, 0, len(rows.order) - 1, "a place")) == free, "the places are not all visible ones")
        tokens = {token for _, token, _ in rows.steps[rows.order.index(at)]}
        work += [(at, token, order, bases) for token in sorted(tokens)]
    spread(partial(one_read, model, margin), work)
    return sentence(model.task, rows.claim), 0


def sentence(task: str, claim: str) -> str:
    return f"{task}: {claim}"


def one_read(model: Model, margin: int, at: int, token: int, order: list[int], bases: Any) -> None:
    """Check that all inputs with one token at the read position are right there by the margin."""
    rows = AUTOMATA[model.task](model)
    sight = PlaceTerms(model.as_decoder(), rows, at, token, bases)
    after, answer = rows.reads[at]
    least = (margin >> P - F) + 1
    for state in sorted(set(sight.between(0, after)[0]) & set(sight.onward(after))):
        sight.prove({0: 0, after: state}, {}, sight.nothing, order, answer(state), least)


class After:
    """The layers after attention, in units of 2^-F."""

    def __init__(self, decoder: Decoder) -> None:
        self.eps = fixed(decoder.eps, "norm_eps") >> P - F
        cut = [None if w is None else [x >> P - F for x in w] for w in (decoder.ln2, decoder.final)]
        self.ln2, self.final = cut
        self.neurons = decoder.neurons
        if decoder.neurons is not None:
            _, gate, into, out = decoder.neurons
            self.gate, self.into, self.out = (None if m is None else Columns(m.full, m.bias) for m in (gate, into, out))
        self.read = Columns(decoder.read, decoder.b_read)

    def lead(self, x: Form, right: int) -> int | None:
        """Return a lower bound on the right output's lead, or None if there is no finite one."""
        inner: Form | None = x
        if self.neurons is not None:
            inner = x if self.ln2 is None else rms(x, self.ln2, self.eps)
            if inner is None:
                return None
            assert self.into is not None
            assert self.out is not None
            hidden = self.into(inner)
            if self.gate is None:
                hidden = activated(hidden, self.neurons.activation)
            else:
                hidden = product(activated(self.gate(inner), self.neurons.activation), hidden)
            x = added(x, self.out(hidden))
        last = x if self.final is None else rms(x, self.final, self.eps)
        return None if last is None else lead(last, self.read, right)


@lru_cache(maxsize=4)
def run_after_attention(decoder: Decoder) -> After:
    return After(decoder)


class PlaceTerms:
    """All inputs with one token at the read position, and each place's terms in the sums.

    A channel is a coordinate c of a head, or its negative, with a grid value m. costs: w (c - m) per channel, by place
    and token.
    """

    def __init__(self, decoder: Decoder, rows: Rows, at: int, token: int, bases: Any) -> None:
        self.after = run_after_attention(decoder)
        self.rows, place = rows, rows.order.index(at)
        self.steps = [tuple(s for s in steps if p != place or s[1] == token) for p, steps in enumerate(rows.steps)]
        self.states = [{0}]
        for steps in self.steps:
            self.states.append({then for state, _, then in steps if state in self.states[-1]})
        self.steps = [tuple(s for s in steps if s[0] in here) for steps, here in zip(self.steps, self.states)]
        seen = [p for p, position in enumerate(rows.order) if position <= at]
        keys = {(p, t): (t, rows.order[p]) for p in seen for t in {t for _, t, _ in self.steps[p]}}
        listed(bases, "coordinates", decoder.heads)
        # per group of channels: the grid, and how far a sum may be off
        self.grids: list[list[int]] = []
        self.off: list[int] = []
        self.directions: list[list[int]] = []
        costs: dict[tuple[int, int], list[int]] = {key: [] for key in keys}
        for head in range(decoder.heads):
            scores = {key: decoder.score(head, (token, at), what) for key, what in keys.items()}
            top = max(high for _, high in scores.values())
            weights = {key: exp_between(low - top)[0] >> P - F for key, (low, _) in scores.items()}
            loose = max((exp_between(high - top)[1] >> P - F) + 1 - weights[key] for key, (_, high) in scores.items())
            matrix, inverse = coordinates(bases[head], decoder.width)
            for i in range(decoder.width):
                values = {key: coordinate(decoder, head, what, matrix[i]) for key, what in keys.items()}
                self.directions.append([sum(round_down(f, w) for f, w in zip(inverse[i], column)) >> P - F
                                        for column in zip(*decoder.write[head])])  # fmt: skip
                for sign in (1, -1):
                    mids = {key: sign * mid for key, (mid, _) in values.items()}
                    low, high = min(mids.values()), max(mids.values())
                    slack = max(off for _, off in values.values()) + 1
                    grid = [low + (high - low) * j // GRID for j in range(GRID + 1)]
                    # Errors of a sum: of weights times the span, of values times weights, and truncation.
                    each = (loose * (high - low + 1) >> F) + slack + 3
                    self.grids.append(grid)
                    self.off.append(each * len(seen))
                    for key, c in mids.items():
                        w = weights[key]
                        costs[key] += [w * (c - m) >> F for m in grid]
        self.costs = costs
        self.nothing = [0] * len(self.grids) * (GRID + 1)
        row = decoder.row(token, at)
        self.base = [(m + b) >> P - F for m, b in zip(row.mid, decoder.b_write)]
        self.rest = [(r >> P - F) + 3 for r in row.rad]
        self._tables: dict[tuple[int, int], dict[int, dict[int, list[int]]]] = {}
        self._onward: dict[int, dict[int, list[int]]] = {len(self.steps): dict.fromkeys(self.states[-1], self.nothing)}
        self._rest: dict[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], list[int]] = {}

    def between(self, start: int, stop: int) -> dict[int, dict[int, list[int]]]:
        """Return the smallest sums over all paths from each state at one cut to each state at another."""
        if (start, stop) not in self._tables:
            sums = {state: {state: self.nothing} for state in self.states[start]}
            for place in range(start, stop):
                sums = {state: self._stepped(here, place) for state, here in sums.items()}
            self._tables[start, stop] = sums
        return self._tables[start, stop]

    def _stepped(self, here: dict[int, list[int]], place: int) -> dict[int, list[int]]:
        sums: dict[int, list[int]] = {}
        for state, token, then in self.steps[place]:
            if state in here:
                cost = self.costs.get((place, token))
                grown = here[state] if cost is None else list(map(add, here[state], cost))
                sums[then] = list(map(min, sums[then], grown)) if then in sums else grown
        return sums

    def onward(self, cut: int) -> dict[int, list[int]]:
        """Return the smallest sums from each state to the end."""
        if cut not in self._onward:
            after, sums = self.onward(cut + 1), dict[int, list[int]]()
            for state, token, then in self.steps[cut]:
                if then in after:
                    cost = self.costs.get((cut, token))
                    grown = after[then] if cost is None else list(map(add, after[then], cost))
                    sums[state] = list(map(min, sums[state], grown)) if state in sums else grown
            self._onward[cut] = sums
        return self._onward[cut]

    def bound(self, states: dict[int, int], tokens: dict[int, int], given: list[int], right: int) -> int | None:
        """Return a lower bound on the right output's lead over all inputs with these states and tokens.

        given: the sums of the fixed tokens' costs. The bound is in units of 2^-F.
        """
        # The key includes the fixed places: cuts alone do not tell whether the place between two of them is fixed.
        key = (tuple(sorted(states.items())), tuple(sorted(tokens)))
        if key not in self._rest:
            cuts = sorted(states)
            total = self.onward(cuts[-1])[states[cuts[-1]]]
            for a, b in pairwise(cuts):
                if a not in tokens:
                    total = list(map(add, total, self.between(a, b)[states[a]][states[b]]))
            self._rest[key] = total
        return self.after.lead(self.stream(list(map(add, given, self._rest[key]))), right)

    def prove(self, states: dict[int, int], tokens: dict[int, int], given: list[int], order: Sequence[int], right: int,
              least: int) -> None:  # fmt: skip
        """Prove that one output leads all others by the margin on all these inputs, splitting them if necessary."""
        bound = self.bound(states, tokens, given, right)
        if bound is not None and bound >= least:
            return
        need(len(tokens) < len(order), f"output {right} does not lead by the margin where places have {tokens}")
        place = order[len(tokens)]
        before = max(cut for cut in states if cut <= place)
        behind = min((cut for cut in states if cut > place), default=None)
        comes = self.between(before, place)[states[before]]
        for state, token, then in self.steps[place]:
            goes = self.onward(place + 1) if behind is None else self.between(place + 1, behind).get(then, {})
            if state in comes and (then if behind is None else states[behind]) in goes:
                self.prove({**states, place: state, place + 1: then}, {**tokens, place: token},
                           list(map(add, given, self.costs[place, token])), order, right, least)  # fmt: skip

    def stream(self, sums: list[int]) -> Form:
        """Return the residual stream after attention, from the smallest sums of each channel."""
        center, rest, slopes, width = list(self.base), list(self.rest), [], GRID + 1
        for index, direction in enumerate(self.directions):
            low, high = (crossing(self.grids[i], sums[i * width : (i + 1) * width], self.off[i])
                         for i in (2 * index, 2 * index + 1))  # fmt: skip
            high = max(-high, low)
            middle, half = (low + high) >> 1, (high - low + 2) >> 1
            center = [c + (middle * d >> F) for c, d in zip(center, direction)]
            slopes.append([half * d >> F for d in direction])
            cut = ((abs(middle) + half) * 4 >> F) + 3  # truncation of directions and products
            rest = [r + cut for r in rest]
        return Form(center, slopes, rest)


def crossing(grid: list[int], values: list[int], off: int) -> int:
    """Return a lower bound on the zero of a decreasing concave function that is at least values - off on the grid."""
    left = -1
    for value in values:
        if value < off:
            break
        left += 1
    if left == -1:
        return grid[0] - off
    if left == len(grid) - 1:
        return grid[-1] - off
    above, below = values[left] - off, values[left + 1] - off
    return grid[left] + (grid[left + 1] - grid[left]) * above // (above - below) - 1


def coordinate(decoder: Decoder, head: int, key: tuple[int, int], along: list[int]) -> tuple[int, int]:
    """Return one coordinate of a value in units of 2^-F, and its error."""
    value = decoder.value(head, *key)
    off = sum(r * abs(a) for r, a in zip(value.rad, along))
    return sum(map(mul, value.mid, along)) >> 2 * P - F, (off >> 2 * P - F) + 2


@lru_cache(maxsize=256)
def _inverted(flat: tuple[float, ...], n: int) -> tuple[list[list[int]], list[list[Fraction]]]:
    rows = [
        [Fraction(x) for x in flat[i * n : (i + 1) * n]] + [Fraction(int(i == j)) for j in range(n)] for i in range(n)
    ]
    for i in range(n):
        pivot = next((r for r in range(i, n) if rows[r][i]), None)
        need(pivot is not None, "coordinates do not tell values apart")
        assert pivot is not None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        rows = [row if r == i else [x - row[i] * y for x, y in zip(row, rows[i])] for r, row in enumerate(rows)]
    forward = [[int(Fraction(flat[i * n + j]) * (1 << P)) for j in range(n)] for i in range(n)]
    need(all(Fraction(x, 1 << P) == Fraction(y) for row, i in zip(forward, range(n)) for x, y in
             zip(row, flat[i * n : (i + 1) * n])), "coordinates are too fine")  # fmt: skip
    # value = inverse (matrix value), so column i of the inverse belongs to coordinate i
    inverse = [row[n:] for row in rows]
    return forward, [[inverse[j][i] for j in range(n)] for i in range(n)]


def coordinates(given: Any, n: int) -> tuple[list[list[int]], list[list[Fraction]]]:
    """Return the matrix from values to coordinates, and the columns of its inverse."""
    flat = tuple(hexadecimal(x, "a coordinate") for x in listed(given, "coordinates", n * n))
    need(max(map(abs, flat)) <= 2, "coordinates are of size 2 at most")
    return _inverted(flat, n)


def round_down(share: Fraction, w: int) -> int:
    return share.numerator * w // share.denominator
