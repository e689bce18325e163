"""Check claims about all sequences: the answer at every position is the count of its token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import comb
from operator import add, mul
from typing import Any, NamedTuple

from .enclosures import ONE, REALS, Matrix, P, ceil_div, up
from .inputs import Found, Spread, said_of
from .layer import weights_of
from .model import Model
from .reading import Fault, fields, listed, need, whole, wholes
from .tasks import histogram

C = 32
"""Number of fractional bits in the slopes of linear ReLU bounds."""


class Around(NamedTuple):
    """One own token t. Neuron i reads own[i] + (sum over visible rows of weight * value[i]) / (sum of weights or 1).

    weights: per row, [BOS] last. patterns: fixed weights per position and slot. lead[k - 1]: per other output, the
    readout of the right output for count k minus its readout, and the value that lead . relu must reach.
    """

    t: int
    T: int
    L: int
    softmax: bool
    own: tuple[int, ...]
    values: list[tuple[int, ...]]
    weights: list[int]
    patterns: list[list[int]]
    lead: list[list[tuple[list[int], int]]]

    def open(self, k: int, lo: list[int], hi: list[int]) -> Iterator[tuple[list[int], int]]:
        """Yield the leads that might not reach their required value if every neuron's input is in [lo, hi]."""
        for lead, wanted in self.lead[k - 1]:
            if sum(w * max(a, 0) if w > 0 else w * max(b, 0) for w, a, b in zip(lead, lo, hi)) < wanted << P:
                yield lead, wanted

    def not_proved(self, k: int) -> Fault:
        return Fault(f"token {self.t}, {k} times: the right output is not proved to be the largest")


def multisets(around: Around, cuts: Any) -> int:
    """Check all inputs of one own token if order does not matter; return the number of inputs in the parts.

    A part fixes the counts of some tokens; the other slots have any of the remaining tokens. The neurons' input is
    between the part's ends, where all other slots have the same token. Terms w relu(z) with w < 0 are concave. For
    w > 0, w a z is a lower bound for 0 <= a <= 1; here a is 0 or 1. So the sum of the bounds is smallest at an end.
    cuts: per part, the token by whose count it is split, or null.
    """
    t, L, T, own = around.t, around.L, around.T, around.own
    terms = [[w * x for x in row] for w, row in zip(around.weights, around.values)]
    below = around.weights if around.softmax else [0] * len(terms)
    base, start = (terms[T], below[T]) if len(terms) > T else ([0] * len(own), 0)
    start += 0 if around.softmax else ONE
    others = tuple(o for o in range(T) if o != t)
    stack = [(k, others, L - k, [b + k * x for b, x in zip(base, terms[t])], start + k * below[t], 1)
             for k in (range(L, 0, -1) if T > 1 else [L])]  # fmt: skip
    inputs = 0
    for cut in listed(cuts, "cuts"):
        need(stack, "there are more parts than the cuts make")
        k, rest, left, top, bottom, ways = stack.pop()
        if cut is not None:
            need(left > 0 and len(rest) > 1, "a part with one kind of sequence cannot be split")
            need(whole(cut, 0, T - 1, "a cut") in rest, f"a part is split by token {cut}, whose count is already fixed")
            fewer = tuple(o for o in rest if o != cut)
            for n in range(left, -1, -1):
                more = [x + n * y for x, y in zip(top, terms[cut])]
                stack.append((k, fewer, left - n, more, bottom + n * below[cut], ways * comb(left, n)))
            continue
        ends = [[(x + left * y) // (bottom + left * below[o]) + z for x, y, z in zip(top, terms[o], own)]
                for o in (rest if left else [t])]  # fmt: skip
        lo, hi = [min(column) for column in zip(*ends)], [max(column) + 1 for column in zip(*ends)]
        for lead, wanted in around.open(k, lo, hi):
            rising = [w if w > 0 and b > -a else 0 for w, a, b in zip(lead, lo, hi)]
            falling = [min(w, 0) for w in lead]
            for end in ends:
                least = sum(map(mul, rising, end)) + sum(w * (z + 1) for w, z in zip(falling, end) if z >= 0)
                if least < wanted << P:
                    raise around.not_proved(k)
        inputs += L * comb(L - 1, k - 1) * ways * len(rest) ** left
    need(not stack, "a part of the domain is left out")
    return inputs


def slots(around: Around) -> None:
    """Check all inputs of one own token t for fixed patterns, at each position and count.

    A linear function of the neurons' input is smallest if t is in the slots where it costs least, and each other slot
    has its best other token.
    """
    t, L, T, own, mine = around.t, around.L, around.T, around.own, around.values[around.t]
    others = [o for o in range(T) if o != t] or [t]
    columns = list(zip(*(around.values[o] for o in others)))
    for position, pattern in enumerate(around.patterns):

        def least_sum(low: int, high: int, at: int, k: int, pattern: Any = pattern, position: int = position) -> int:
            """Return the smallest sum over slots of a function of the token: `at` for t, low to high for others."""
            row = [a for slot, a in enumerate(pattern) if slot != position]
            best = [a * (low if a > 0 else high) for a in row]
            gains = sorted(a * at - b for a, b in zip(row, best))
            return pattern[position] * at + sum(best) + sum(gains[: k - 1]) >> P

        for k in range(1, L + 1) if T > 1 else [L]:
            lo = [o + least_sum(min(c), max(c), x, k) for o, c, x in zip(own, columns, mine)]
            hi = [o - least_sum(-max(c), -min(c), -x, k) for o, c, x in zip(own, columns, mine)]

            for lead, wanted in around.open(k, lo, hi):
                for slopes, offset in lines(lead, lo, hi):
                    each = [sum(map(mul, slopes, around.values[o])) for o in others]
                    least = least_sum(min(each), max(each), sum(map(mul, slopes, mine)), k)
                    if int(least) + sum(map(mul, slopes, own)) + offset >= wanted << (P + C):
                        break
                else:
                    raise around.not_proved(k)


def lines(lead: list[int], lo: list[int], hi: list[int]) -> Iterator[tuple[list[int], int]]:
    """Yield two linear lower bounds on sum w relu(z) on [lo, hi], times 2^C.

    If a neuron's sign is fixed, its term is linear. Otherwise the bound is the chord for w < 0, and a line w a z with
    0 <= a <= 1 for w > 0: a = 0 or 1, or the chord's slope.
    """
    for parallel in (False, True):
        slopes, offset = [], 0
        for w, a, b in zip(lead, lo, hi):
            share = 0 if b <= 0 else 1 << C
            if a < 0 < b:
                if w < 0 or parallel:
                    share = ceil_div(b << C, b - a)
                elif b <= -a:
                    share = 0
                offset -= w * share * a if w < 0 else 0
            slopes.append(w * share)
        yield slopes, offset


def one_token(model: Model, ids: list[int], T: int, L: int, right: list[int], margin: int, t: int, part: Any) -> int:
    """Check all inputs with one own token; return the rounding bound. From here on, tokens are indices into ids."""
    layer, rows, hidden = model.layers[0], [model.words[token] for token in ids], Matrix(model.hidden.full)
    softmax, keys, f = layer.softmax, len(rows) - T + L, model.f
    values = [hidden(row, REALS) for row in rows]
    every = layer.pattern[0] if layer.linear else [layer.scores(0, rows[t], rows, 0)]
    bounds = [weights_of(scores, softmax) for scores in every]
    if layer.linear and softmax:
        sums = [[sum(pair[i] for pair in row) for i in (0, 1)] for row in bounds]
        bounds = [[((a << P) // high, ceil_div(b << P, low)) for a, b in row] for row, (low, high) in zip(bounds, sums)]
    mids = [[(low + high) >> 1 for low, high in row] for row in bounds]
    off = max(high - low + 1 for row in bounds for low, high in row)
    sizes, radii = ([max(column) for column in zip(*rows)] for rows in (
        [v.sizes() for v in values], [v.rad for v in values]))  # fmt: skip
    if softmax and not layer.linear:  # t itself and [BOS] are always present, so a mean moves by at most this
        present = bounds[0][t][0] + sum(low for low, _ in bounds[0][T:])
        relative = ceil_div(keys * off << P, max(1, present))
        need(relative < ONE >> 4, "the bounds on a softmax weight are too wide")
        slip = [up(4 * relative * size) + 2 * rad + 8 for size, rad in zip(sizes, radii)]
    else:
        reach = max(max(-low, high) for row in bounds for low, high in row)
        slip = [up(keys * (off * size + reach * rad)) + rad + 8 for size, rad in zip(sizes, radii)]
    lead: list[list[tuple[list[int], int]]] = []
    for r in right:
        leads = [[a - b for a, b in zip(model.out.full[r], column)] for column in model.out.full]
        loss = [
            up(sum(map(mul, map(abs, row), slip))) + 1 - model.out.bias[r] + b for row, b in zip(leads, model.out.bias)
        ]
        lead.append([(row, margin + loss[j]) for j, row in enumerate(leads) if j != r])
    own = tuple(map(add, values[t].mid, model.hidden.bias))
    patterns = mids if layer.linear else []
    around = Around(t, T, L, softmax, own, [v.mid for v in values], mids[0], patterns, lead)
    if layer.linear:
        need(part is None, "a fixed pattern has no parts")
        slots(around)
    else:
        inputs = multisets(around, part)
        need(inputs == L * T ** (L - 1), f"the parts of token {t} hold {inputs} inputs, not {L * T ** (L - 1)}")
    return max(model.drift(rows[t], rows, keys, scores) for scores in every) if f.bits else 0


def runs(numbers: Sequence[int]) -> str:
    """Format numbers as a range, 0..31, or as a list, [0, 2, 3]."""
    numbers = list(numbers)
    plain = len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{numbers[0]}..{numbers[-1]}" if plain else str(numbers)


def sequences(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Check that in all T^L rows of counted tokens after the marks, every position gives its token's count."""
    counted, marks, L, right = fields(domain, "counted marks length classes", "claim.domain")
    last = len(model.words) - 1
    counted, marks = wholes(counted, 0, last, "a counted token"), wholes(marks, 0, last, "a mark")
    T, L = len(counted), whole(L, 1, 64, "length")
    wholes(right, 0, model.n_out - 1, "a class", L)
    need(
        counted and len(marks) <= 1 and len({*counted, *marks}) == T + len(marks),
        "tokens must differ, one mark at most",
    )
    if model.task == "histogram":
        own_T, own_L, bos, zero = histogram(model)
        expected = [list(range(T)), [T] * bos, [n - (not zero) for n in range(1, L + 1)], T, L]
        need([counted, marks, right, own_T, own_L] == expected, "the histogram has other tokens, or other classes")
    linear = model.layers[0].linear
    model.require(direction=("bidirectional",), readout=("relu_mlp",), readout_width=None, norm_eps=None, scale=None,
                  mixing=("dot", "linear"), normalizer=("softmax", "none"), value_output=("identity",),
                  query_key=("learned", "full"), bias=({}, {"q": True}, {"k": True}, {"q": True, "k": True}),
                  max_length=(L if linear else None,))  # fmt: skip
    need(not (linear and marks), "a fixed pattern is checked without marks")
    work = list(zip(range(T), listed(parts, "parts", T)))
    rounding = max(spread(partial(one_token, model, [*counted, *marks], T, L, right, margin), work))
    claim = sentence(model.task, counted, marks, L, right)
    return claim, rounding


def sentence(task: str, counted: Sequence[int], marks: Sequence[int], L: int, right: Sequence[int]) -> str:
    """Return the claim about all sequences; for unknown tasks the classes come from the file."""
    after = f", each after token {marks[0]}" if marks else ""
    claim = (f"in all {len(counted)}^{L} sequences of {L} tokens among {runs(counted)}{after}, every token that occurs "
             f"1, 2, ... {L} times in its own has its largest output at {runs(right)}, in this order")  # fmt: skip
    return said_of(task, task == "histogram", claim)
