"""Count the multisets that a one-layer counter answers wrong: a compiled walk over all of them (numba).

The neurons' input at a query token is a sum over the other tokens (for softmax two sums, the second as one more
column). The other tokens are split into three groups. For each multiset of the first group (a prefix), every multiset
of the second group is combined with every one of the third. Tables contain the sums over the multisets of each group,
in blocks of 64. So one evaluation takes an addition, a ReLU and a few products per neuron, on 64 multisets at once.

Before two blocks are combined (a tile of 64 x 64 multisets), linear bounds show which neurons change their sign and
which answers can win. The others are skipped, and a tile with no open answer is decided as a whole.

Everything is evaluated in float32 with an error bound, and again in float64 if a result is within this bound. Counts
are sums of integers below 2^53 in float64, so they are exact.
"""

from collections import namedtuple
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from interp.families.histogram.compiled.layout import sources
from interp.families.histogram.compiled.vectors import (
    Code,
    Vector,
    constant,
    fill,
    fma,
    get,
    inner,
    largest,
    load,
    load_tile,
    lowest,
    operation,
    put,
    smallest,
    spread,
    spread_tile,
    store,
    tiled,
    total,
)

BLOCK = 64
"""Number of multisets evaluated together: four vectors of float32."""
UNIT = np.float32(2.0**-24)
TINY = np.float32(np.finfo(np.float32).tiny)

Query = namedtuple("Query", "weight size sizes weight64 need slack slots")
"""One own token and count. weight (classes, columns): weights of the leads over the other answers, minus the required
margin. size: their absolute values, padded to whole vectors. sizes: 4 times the sums of size. weight64: the weights in
float64, padded. need, slack: thresholds for the leads. slots: the largest number of other tokens, over all counts."""

TokenGroup = namedtuple("TokenGroup", "values low high most ways start tokens length whole list_ways rows number")
"""All multisets of one group of tokens. values (blocks, columns, BLOCK). low, high, most (blocks + lists, columns):
range and largest absolute value per block, then per list. start: the first block for each number of slots."""

Ends = namedtuple("Ends", "values low high most blocks nothing whole_nothing")
"""The extreme values that the rest of a prefix can add. Node depth * (slots + 1) + n: n copies of each token from that
depth on. low, high, most: per node. Block `nothing` and node `whole_nothing` are zero."""

Tokens = namedtuple("Tokens", "terms columns alike prefix rest_ways choose")
"""terms (tokens, columns): float64, padded to whole vectors. alike: number of tokens with the same terms. prefix: the
first group. rest_ways[depth, n]: number of ways to fill n slots with tokens from that depth on. choose[n, c]: binomial
coefficients."""

Scratch = namedtuple(
    "Scratch",
    "point active mixed low high most sx sy lx ly weight least open kept bound row row64 sum64 out "
    "slip rows64 left times ways fresh ahead n_ahead examples n_examples",
)


@operation(lambda a, b: types.int64(a, b))
def bits_above(code: Code, a: Any, b: Any) -> Any:
    """Return a bit mask of the lanes in which a > b."""
    mask = code.builder.bitcast(code.builder.fcmp_ordered(">", a, b), ir.IntType(code.kinds[0].lanes))
    return code.builder.zext(mask, ir.IntType(64))


@operation(lambda array, index, bits: Vector(array.dtype)(array, types.intp, types.int64))
def load_where(code: Code, array: Any, index: Any, bits: Any) -> Any:
    """Return the vector at flat position `index`, with 0 in lanes whose bit is not set."""
    n = code.result.lanes
    mask = code.builder.bitcast(code.builder.trunc(bits, ir.IntType(n)), ir.VectorType(ir.IntType(1), n))
    value = code.read(code.result, [code.address(array, index)])
    return code.builder.select(mask, value, constant(code.result, 0.0))


@operation(lambda tile: Vector(tile.dtype, 1, tile.columns)(tile))
def lowest_row(code: Code, tile: Any) -> Any:
    """Return the smallest number over a tile's rows, place by place."""
    builder, columns = code.builder, code.result.columns
    parts = code.kinds[0].parts(builder, tile)
    first = parts[:columns]
    for at in range(columns, len(parts), columns):
        first = [builder.select(builder.fcmp_ordered("<", x, y), x, y) for x, y in zip(first, parts[at:])]
    return code.result.packed(builder, first)


@inner
def load_block(array: Any, index: int) -> Any:
    return load_tile(array, index, 1, 4, 0, 0)


@inner
def sort_neurons(w: Any, a: Any, i: int, b: Any, j: int, columns: int) -> tuple[int, int]:
    """Find the columns that are positive everywhere (active) or change sign (mixed); the others add nothing."""
    n_active, n_mixed = 0, 0
    unit = np.float32(8) * UNIT
    for c in range(columns):
        at_i, at_j = i * columns + c, j * columns + c
        point = get(w.point, c)
        most = abs(point) + get(a.most, at_i) + get(b.most, at_j)
        slip = unit * most + TINY
        low, high = (
            point + get(a.low, at_i) + get(b.low, at_j) - slip,
            point + get(a.high, at_i) + get(b.high, at_j) + slip,
        )
        put(w.low, c, low)
        put(w.high, c, high)
        put(w.most, c, most)
        if low > 0 or c == columns - 1:
            put(w.active, n_active, c)
            n_active += 1
        elif not high < 0:
            put(w.mixed, n_mixed, c)
            n_mixed += 1
        else:
            put(w.most, c, np.float32(0))
    return n_active, n_mixed


@inner
def slip_of(q: Any, w: Any, j: int, columns: int) -> Any:
    """Bound on the float32 error of the lead over answer j on this tile."""
    found, base = fill(np.float32(0)), j * q.size.shape[1]
    for c in range(0, q.size.shape[1], 16):
        found = fma(load(q.size, base + c), load(w.most, c), found)
    terms = np.float32(columns + 16)
    return np.float32(1.01) * (terms * UNIT * total(found) + TINY * (get(q.sizes, j) + np.float32(4) * terms))


@inner
def line(w: Any, weight: Any, c: int, upper: bool) -> tuple[Any, Any]:
    """Return the slope and offset of a line below (or above) weight relu(y) between low and high."""
    low, high = get(w.low, c), get(w.high, c)
    if (weight > 0) != upper:
        return (weight if high > -low else np.float32(0)), np.float32(0)
    slope = weight * (high / (high - low))
    return slope, -slope * low


@inner
def extreme(q: Any, w: Any, g: Any, first: int, last: int, n: int, columns: int, sign: Any) -> Any:
    """Return the smallest sum of slopes times values over some blocks (sign = -1: minus the largest sum)."""
    best, factor = tiled(fill(np.float32(np.inf)), 1, 4), fill(sign)
    for block in range(first, last):
        at, found = block * columns * BLOCK, tiled(fill(np.float32(0)), 1, 4)
        for m in range(n):
            found = fma(spread(w.bound, m), load_block(g.values, at + get(w.row, m) * BLOCK), found)
        best = smallest(best, found * factor)
    return lowest(best)


@inner
def lead_bound(
    q: Any, w: Any, j: int, a: Any, a0: int, a1: int, b: Any, b0: int, b1: int, active: int, mixed: int, columns: int,
    upper: bool,
) -> Any:  # fmt: skip
    """Return a lower bound on lead j on a tile, or an upper bound with `upper`, without rounding."""
    offset, n = np.float32(0), 0
    for m in range(active):
        c = get(w.active, m)
        weight = get(q.weight, j * columns + c)
        offset += weight * get(w.point, c)
        put(w.row, n, c)
        put(w.bound, n, weight)
        n += 1
    for m in range(mixed):
        c = get(w.mixed, m)
        slope, above = line(w, get(q.weight, j * columns + c), c, upper)
        if slope != 0:
            offset += slope * get(w.point, c) + above
            put(w.row, n, c)
            put(w.bound, n, slope)
            n += 1
    sign = np.float32(-1) if upper else np.float32(1)
    found = extreme(q, w, a, a0, a1, n, columns, sign) + extreme(q, w, b, b0, b1, n, columns, sign)
    return offset + sign * found


@inner
def thresholds(q: Any, w: Any, n: int, columns: int) -> None:
    """Set the thresholds for leads (minus the required margin, times the sum of weights) over the n answers in w.kept.

    With slip = w.slip: above slip[0] an input is right, below slip[1] it is wrong, and between slip[2] and slip[3] it
    is right by too small a margin.
    """
    slip, gap, need, slack = np.float32(0), 0.0, np.inf, 0.0
    for o in range(n):
        answer = get(w.kept, o)
        off = slip_of(q, w, answer, columns)
        slip = off if not off < slip else slip
        gap, slack = max(gap, q.need[answer] + q.slack[answer]), max(slack, q.slack[answer])
        need = min(need, q.need[answer])
    most, least = float(get(w.high, columns - 1)), max(0.0, float(get(w.low, columns - 1)))
    put(w.slip, 0, slip)
    put(w.slip, 1, -np.float32(1.00001) * (slip + np.float32(gap * most) + TINY))
    put(w.slip, 2, np.float32(slip + slack * most - need * least + 1e-5 * (slip + slack * most + need * least)) + TINY)
    put(w.slip, 3, -slip)


@inner
def open_answers(
    q: Any, w: Any, n: int, a: Any, a0: int, a1: int, b: Any, b0: int, b1: int, active: int, mixed: int, columns: int,
    every: bool,
) -> int:  # fmt: skip
    """Reduce the n answers in w.kept to those that can win on a tile; return their number, or -1 if one always wins.

    every: test each answer for winning everywhere, instead of only the strongest one.
    """
    left, worst, least = 0, 0, np.float32(0)
    for o in range(n):
        answer = get(w.kept, o)
        low = lead_bound(q, w, answer, a, a0, a1, b, b0, b1, active, mixed, columns, False)
        if not low > slip_of(q, w, answer, columns):
            put(w.kept, left, answer)
            if left == 0 or not low > least:
                worst, least = left, low
            left += 1
    if left == 0:
        return 0
    thresholds(q, w, left, columns)
    for o in range(left) if every else range(worst, worst + 1):
        if lead_bound(q, w, get(w.kept, o), a, a0, a1, b, b0, b1, active, mixed, columns, True) < get(w.slip, 1):
            return -1
    return left


@inner
def lay_out(q: Any, w: Any, a: Any, i: int, b: Any, j: int, active: int, mixed: int, n: int, columns: int) -> None:
    """Store the mixed neurons' values, and the active neurons' contributions to each of the n open leads."""
    at_a, at_b, wide = i * columns * BLOCK, j * columns * BLOCK, w.weight.shape[1]
    for m in range(mixed):
        c = get(w.mixed, m)
        store(w.sx, m * BLOCK, load_block(a.values, at_a + c * BLOCK) + spread(w.point, c))
        store(w.sy, m * BLOCK, load_block(b.values, at_b + c * BLOCK))
        for o in range(n):
            put(w.weight, m * wide + o, get(q.weight, get(w.kept, o) * columns + c))
    for o in range(n):
        base, offset, zero = get(w.kept, o) * columns, np.float32(0), tiled(fill(np.float32(0)), 1, 4)
        x, y = zero, zero
        for m in range(active):
            c = get(w.active, m)
            weight = spread(q.weight, base + c)
            offset += get(q.weight, base + c) * get(w.point, c)
            x = fma(weight, load_block(a.values, at_a + c * BLOCK), x)
            y = fma(weight, load_block(b.values, at_b + c * BLOCK), y)
        store(w.lx, o * BLOCK, x + fill(offset))
        store(w.ly, o * BLOCK, y)


def _evaluate(leads: int) -> Any:
    """Compile the evaluation of this many leads together, which share the neurons."""

    @inner
    def evaluate(w: Any, rows: int, mixed: int, o: int, fresh: bool) -> None:
        """Set least = min(least, leads o, o + 1, ...) for each pair, without the old `least` if `fresh`."""
        zero, ly, wide = fill(np.float32(0)), o * BLOCK, w.weight.shape[1]
        for x in range(rows):
            found = load_tile(w.ly, ly, leads, 4, BLOCK, leads) + spread_tile(w.lx, ly + x, leads, BLOCK, leads)
            for m in range(mixed):
                neuron = largest(load_block(w.sy, m * BLOCK) + spread(w.sx, m * BLOCK + x), zero)
                found = fma(spread_tile(w.weight, m * wide + o, leads, 1, leads), neuron, found)
            least = lowest_row(found)
            store(w.least, x * BLOCK, least if fresh else smallest(least, load_block(w.least, x * BLOCK)))

    return evaluate


evaluate_one, evaluate_two, evaluate_three = _evaluate(1), _evaluate(2), _evaluate(3)


@inner
def note(w: Any, depth: int, a: Any, x: int, b: Any, y: int) -> None:
    """Record a wrong multiset: the counts of the first `depth` tokens, and its parts in the other groups (-1: any)."""
    n = w.n_examples[0]
    if n < len(w.examples):
        w.examples[n, 0] = depth
        w.examples[n, 1 + a.number], w.examples[n, 1 + b.number] = x, y
        for d in range(depth):
            w.examples[n, 3 + d] = w.times[d]
        w.n_examples[0] = n + 1


@inner
def again(q: Any, w: Any, t: Any, a: Any, x: int, b: Any, y: int, n: int) -> int:
    """Evaluate a multiset in float64: 0 right, 1 wrong, 2 close (right, but within rounding), 3 undecided.

    w.row64 contains the terms of own tokens and prefix.
    """
    columns, row, wide = t.columns, w.sum64, t.terms.shape[1]
    for c in range(0, wide, 8):
        value = load(w.row64, c)
        for slot in range(a.length[x // BLOCK]):
            value = value + load(t.terms, get(a.tokens, x * a.tokens.shape[1] + slot) * wide + c)
        for slot in range(b.length[y // BLOCK]):
            value = value + load(t.terms, get(b.tokens, y * b.tokens.shape[1] + slot) * wide + c)
        store(row, c, largest(value, fill(0.0)))
    scale, close, tied = get(row, columns - 1), False, False
    for o in range(n):
        j = get(w.kept, o)
        found = fill(0.0)
        for c in range(0, wide, 8):
            found = fma(load(q.weight64, j * wide + c), load(row, c), found)
        lead = total(found)
        if lead < -q.slack[j] * scale:
            return 1
        if not lead > q.slack[j] * scale:
            tied = True
        elif not lead > q.need[j] * scale:
            close = True
    return 3 if tied else 2 if close else 0


@inner
def tally(q: Any, w: Any, t: Any, a: Any, i: int, b: Any, j: int, rows: int, n: int, ways: float) -> None:
    """Add the wrong and close multisets of a tile to w.out; evaluate the undecided ones in float64."""
    high, low, zero = spread(w.slip, 0), spread(w.slip, 1), fill(0.0)
    won, near = get(w.slip, 2), get(w.slip, 3)
    whole, noted = zero, 0
    for x in range(rows):
        at, many, wrong_ways = x * BLOCK, get(a.ways, i * BLOCK + x), zero
        some = False
        for v in range(0, BLOCK, 16):
            least = load(w.least, at + v)
            right = bits_above(least, high)
            if right != 0xFFFF:
                wrong = bits_above(low, least)
                if wrong != 0:
                    if not some and noted == 0:
                        noted, lane = 1, v
                        while not (wrong >> (lane - v)) & 1:
                            lane += 1
                        note(w, len(t.prefix), a, i * BLOCK + x, b, j * BLOCK + lane)
                    some = True
                    y = j * BLOCK + v
                    wrong_ways = wrong_ways + load_where(b.ways, y, wrong)
                    wrong_ways = wrong_ways + load_where(b.ways, y + 8, wrong >> 8)
                unsure = 0xFFFF & ~(right | wrong)
                lane = v
                while unsure != 0:
                    here = many * get(b.ways, j * BLOCK + lane)
                    if unsure & 1 and here != 0:
                        value, found = get(w.least, x * BLOCK + lane), 2
                        if not (value > won and value < near):
                            found = again(q, w, t, a, i * BLOCK + x, b, j * BLOCK + lane, n)
                            w.out[5] += 1.0
                        w.out[found] += ways * here
                        if found == 1:
                            note(w, len(t.prefix), a, i * BLOCK + x, b, j * BLOCK + lane)
                    unsure >>= 1
                    lane += 1
        if some:
            whole = fma(fill(many), wrong_ways, whole)
    w.out[1] += ways * total(whole)


@inner
def tile(q: Any, w: Any, t: Any, a: Any, i: int, b: Any, j: int, n: int, ways: float, columns: int) -> None:
    """Process two blocks: first bounds, then the multisets that they leave open. w.open: the n answers that can win."""
    active, mixed = sort_neurons(w, a, i, b, j, columns)
    for o in range(n):
        put(w.kept, o, get(w.open, o))
    rows, o, left = get(a.rows, i), 0, n
    if rows * (n * (mixed + 1) + 2 * mixed) > 4 * n * (active + mixed):  # cost of evaluating all, and of bounds
        left = open_answers(q, w, n, a, i, i + 1, b, j, j + 1, active, mixed, columns, False)
        if left < 0:
            w.out[1] += ways * get(a.whole, i) * get(b.whole, j)
            note(w, len(t.prefix), a, i * BLOCK, b, j * BLOCK)
        if left <= 0:
            return
    else:
        thresholds(q, w, n, columns)
    lay_out(q, w, a, i, b, j, active, mixed, left, columns)
    while o < left:
        fresh = o == 0
        if left - o >= 3:
            evaluate_three(w, rows, mixed, o, fresh)
            o += 3
        elif left - o == 2:
            evaluate_two(w, rows, mixed, o, fresh)
            o += 2
        else:
            evaluate_one(w, rows, mixed, o, fresh)
            o += 1
    w.out[4] += float(rows) * BLOCK
    tally(q, w, t, a, i, b, j, rows, left, ways)


@inner
def lists(
    q: Any, w: Any, t: Any, a: Any, i: int, b: Any, j: int, many: int, first: int, ways: float, columns: int
) -> float:  # fmt: skip
    """Combine all multisets of i slots of one group with all of j slots of another; return the work done.

    w.ahead contains, from flat position `first` on, the answers that can win.
    """
    a0, a1, b0, b1 = a.start[i], a.start[i + 1], b.start[j], b.start[j + 1]
    if a0 == a1 or b0 == b1:
        return 0.0
    for o in range(many):
        put(w.kept, o, get(w.ahead, first + o))
    n, spent, tiles = many, float(a1 - a0 + b1 - b0), float((a1 - a0) * (b1 - b0))
    if tiles > 1:
        active, mixed = sort_neurons(w, a, a.values.shape[0] + i, b, b.values.shape[0] + j, columns)
        n = open_answers(q, w, n, a, a0, a1, b, b0, b1, active, mixed, columns, True)
    if n < 0:
        w.out[1] += ways * a.list_ways[i] * b.list_ways[j]
        note(w, len(t.prefix), a, a0 * BLOCK, b, b0 * BLOCK)
    if n <= 0:
        return spent
    for o in range(n):
        put(w.open, o, get(w.kept, o))
    for x in range(a0, a1):
        for y in range(b0, b1):
            # The fuller block fills the lanes; the loop goes over the rows of the other one.
            if get(a.rows, x) > get(b.rows, y):
                tile(q, w, t, b, y, a, x, n, ways, columns)
            else:
                tile(q, w, t, a, x, b, y, n, ways, columns)
    return spent + 4.0 * tiles


@inner
def lists_of(
    q: Any, w: Any, t: Any, a: Any, b: Any, slots: int, many: int, first: int, ways: float, columns: int
) -> float:  # fmt: skip
    """Process all multisets of the second and third group for a number of slots; return the work done."""
    for c in range(columns):
        put(w.point, c, np.float32(w.row64[c]))
    spent = 0.0
    for i in range(slots + 1):
        spent += lists(q, w, t, a, i, b, slots - i, many, first, ways * t.choose[slots, i], columns)
    return spent


@inner
def settle(q: Any, w: Any, t: Any, a: Any, b: Any, ends: Any, depth: int, ways: float, columns: int) -> bool:
    """Bound everything that can follow the first `depth` tokens of the prefix; return whether a part is undecided.

    w.ahead[depth]: the answers that can win, among those at depth - 1.
    """
    left, above = w.left[depth], depth - 1 if depth else 0
    n, before, here = w.n_ahead[above], above * w.ahead.shape[1], depth * w.ahead.shape[1]
    for c in range(columns):
        put(w.point, c, np.float32(get(w.rows64, depth * columns + c)))
    nothing, node = ends.nothing, depth * (q.slots + 1) + left
    first, last = node * ends.blocks, (node + 1) * ends.blocks
    active, mixed = sort_neurons(w, ends, node, ends, ends.whole_nothing, columns)
    for o in range(n):
        put(w.kept, o, get(w.ahead, before + o))
    found = open_answers(q, w, n, ends, first, last, ends, nothing, nothing + 1, active, mixed, columns, True)
    w.n_ahead[depth] = max(found, 0)
    for o in range(found):
        put(w.ahead, here + o, get(w.kept, o))
    w.out[6] += 1.0
    if found < 0:
        w.out[1] += ways * t.rest_ways[depth, left]
        note(w, depth, a, -1, b, -1)
    return found > 0


def _walk(q: Any, w: Any, t: Any, a: Any, b: Any, ends: Any, depth: int, work: float) -> int:
    """Continue at this depth of the prefix until the work is used up; return the next depth, or -1 at the end.

    The prefix is the counts of the first group's tokens. Adds to w.out the number of sequences whose multisets are (0)
    right after a float64 evaluation, (1) wrong, (2) close, (3) undecided; and the number of (4) pairs evaluated
    singly, (5) float64 evaluations, and (6) the work: prefixes and lists of tiles.
    """
    columns, last = t.columns, w.out[6] + work
    tokens = len(t.prefix)
    while depth >= 0:
        if w.fresh[depth]:
            w.fresh[depth] = False
            w.times[depth] = -1
            open_ = settle(q, w, t, a, b, ends, depth, w.ways[depth], columns)
            if open_ and depth == tokens:
                for c in range(columns):
                    w.row64[c] = get(w.rows64, depth * columns + c)
                first = depth * w.ahead.shape[1]
                w.out[6] += lists_of(q, w, t, a, b, w.left[depth], w.n_ahead[depth], first, w.ways[depth], columns)
                open_ = False
            if not open_:
                depth -= 1
                if w.out[6] > last:
                    return depth
                continue
        times = w.times[depth] + 1
        if times > w.left[depth]:
            depth -= 1
            continue
        w.times[depth] = times
        left, token, down = w.left[depth] - times, t.prefix[depth], depth + 1
        w.left[down], w.fresh[down] = left, True
        w.ways[down] = w.ways[depth] * t.choose[w.left[depth], times] * t.alike[token] ** times
        for c in range(columns):
            put(w.rows64, down * columns + c, get(w.rows64, depth * columns + c) + times * t.terms[token, c])
        depth = down
    return -1


_inner_walk = inner(_walk)


def _entry_point(sources: str) -> Any:
    """Compile once and cache on disk; `sources` is part of the cache's key."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def walk(q: Any, w: Any, t: Any, a: Any, b: Any, ends: Any, depth: int, work: float) -> int:
        _ = sources
        return _inner_walk(q, w, t, a, b, ends, depth, work)

    return walk


walk = _entry_point(sources())
