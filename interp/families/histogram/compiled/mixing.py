"""Mixing coefficients of a batch, the loss from them and the token values, and the gradients of all.

Sequence b with n distinct tokens (BOS counts as one) and r rows has an r x n matrix C, which includes the residual. Its
mixed rows are C times the rows of its tokens. Dot-product mixing has one row per distinct token (equal tokens have
equal outputs), linear mixing one per position. The matrices are packed one after another, b's from start[b], column by
column, each padded to whole vectors, so that a vector holds several rows. Padding is finite and never used.
"""

from typing import Any

from interp.families.histogram.compiled.arrays import clear, copy, multiply, transpose
from interp.families.histogram.compiled.elementary import exp, log, store_totals
from interp.families.histogram.compiled.vectors import (
    at_lane,
    fill,
    fma,
    gather_tile,
    get,
    inner,
    lanes_of,
    largest,
    load,
    load_tile,
    put,
    scatter_tile,
    spread_tile,
    store,
    store_tile,
    tiled,
    total,
    where_positive,
)


@inner
def lay_out(s: Any, w: Any, batch: int) -> None:
    """Set rows, columns and start of every sequence's matrix; append BOS as its last token."""
    token, count, distinct, rows, columns, start = w.token, w.count, w.distinct, w.rows, w.columns, w.start
    at, height = 0, w.mix.shape[1]
    for b in range(batch):
        n = distinct[b]
        rows[b], columns[b], start[b] = n if s.dot else s.L, n, at
        if s.bos:
            token[b, n], count[b, n] = s.T, 1
            columns[b] += 1
        at += columns[b] * height
    start[batch] = at


@inner
def dot_coefficients(s: Any, w: Any, batch: int) -> None:
    """Compute C = a + identity: a[i, j] is count_j score_ij, or the softmax of scores over j, weighted by count_j."""
    token, count, rows, columns, start = w.token, w.count, w.rows, w.columns, w.start
    scores, attention, coefficient = w.scores, w.attention, w.coefficient
    lanes, height, number = lanes_of(scores), w.mix.shape[1], scores.dtype.type
    wide, V = token.shape[1], scores.shape[1]
    scale, one = fill(number(s.scale)), fill(number(1))
    for b in range(batch):
        first, at, r = b * wide, get(start, b), get(rows, b)
        for j in range(first, first + get(columns, b)):
            u = get(token, j)
            for i in range(r):
                put(attention, at + i, get(scores, get(token, first + i) * V + u))
            at += height
    for b in range(batch):  # a separate loop: reading a vector right after writing its numbers one by one stalls
        n, r = columns[b], rows[b]
        for v in range(start[b], start[b] + r, lanes):
            factor = scale
            if s.softmax:
                top = load(attention, v)
                for j in range(1, n):
                    top = largest(load(attention, v + j * height), top)
                norm = one - one
                for j in range(n):
                    at = v + j * height
                    e = exp((load(attention, at) - top) * scale) * fill(number(count[b, j]))
                    store(attention, at, e)
                    norm = norm + e
                factor = one / norm
            for j in range(n):
                at = v + j * height
                a, own = load(attention, at) * factor, at_lane(number(1), start[b] + j - v)
                if s.softmax:
                    store(attention, at, a)
                    store(coefficient, at, a + own)
                else:
                    store(coefficient, at, fma(a, fill(number(count[b, j])), own))


@inner
def dot_gradient(s: Any, w: Any, batch: int) -> None:
    """Compute the gradient of the score table, in both orientations, from that of C."""
    token, count, rows, columns, start = w.token, w.count, w.rows, w.columns, w.start
    attention, d_coefficient, d_scores = w.attention, w.d_coefficient, w.d_scores
    lanes, height, number = lanes_of(attention), w.mix.shape[1], d_scores.dtype.type
    wide, V = token.shape[1], d_scores.shape[1]
    scale, zero = fill(number(s.scale)), fill(number(0))
    clear(d_scores)
    for b in range(batch):
        n, r = columns[b], rows[b]
        for v in range(start[b], start[b] + r, lanes):
            mean = zero
            if s.softmax:
                for at in range(v, v + n * height, height):
                    mean = fma(load(attention, at), load(d_coefficient, at), mean)
            for j in range(n):
                at = v + j * height
                a = load(attention, at) if s.softmax else fill(number(count[b, j]))
                store(d_coefficient, at, a * (load(d_coefficient, at) - mean) * scale)
    for b in range(batch):
        first, at, r = b * wide, get(start, b), get(rows, b)
        for j in range(first, first + get(columns, b)):
            u = get(token, j)
            for i in range(r):
                pair = get(token, first + i) * V + u
                put(d_scores, pair, get(d_scores, pair) + get(d_coefficient, at + i))
            at += height
    transpose(w.d_scores_t, d_scores, s.vocab, s.vocab)


@inner
def linear_coefficients(s: Any, params: Any, w: Any, batch: int) -> None:
    """Compute C[l, i], the sum of A[l, m] over the positions m of token i, plus 1 if position l has token i.

    A is W_mix, or its softmax over m.
    """
    mix, width, lanes = params.mix, w.mix.shape[1], lanes_of(w.mix)
    place, start, effective, coefficient, L = w.place, w.start, w.mix, w.coefficient, s.L
    if s.softmax:
        for v in range(0, width, lanes):
            top = load(mix, v)
            for m in range(1, L):
                top = largest(load(mix, m * width + v), top)
            norm = top - top
            for m in range(L):
                e = exp(load(mix, m * width + v) - top)
                norm = norm + e
                store(effective, m * width + v, e)
            for m in range(L):
                store(effective, m * width + v, load(effective, m * width + v) / norm)
    else:
        copy(effective, mix)
    zero, one = fill(mix.dtype.type(0)), mix.dtype.type(1)
    for b in range(batch):
        first = start[b]
        for at in range(first, start[b + 1], lanes):
            store(coefficient, at, zero)
        for m in range(L):
            column = first + get(place, b * L + m) * width
            for v in range(0, width, lanes):
                store(coefficient, column + v, load(coefficient, column + v) + load(effective, m * width + v))
        for m in range(L):
            own = first + get(place, b * L + m) * width + m
            put(coefficient, own, get(coefficient, own) + one)


@inner
def linear_gradient(s: Any, grads: Any, w: Any, batch: int) -> None:
    """Compute the gradient of W_mix from that of C."""
    width, lanes = w.mix.shape[1], lanes_of(w.mix)
    place, start, mix, d_mix, L = w.place, w.start, w.mix, w.d_mix, s.L
    d_coefficient, gradient = w.d_coefficient, grads.mix
    clear(d_mix)
    for b in range(batch):
        for m in range(L):
            column = get(start, b) + get(place, b * L + m) * width
            for v in range(0, width, lanes):
                store(d_mix, m * width + v, load(d_mix, m * width + v) + load(d_coefficient, column + v))
    zero = fill(mix.dtype.type(0))
    for v in range(0, width, lanes):
        mean = zero
        if s.softmax:
            for m in range(L):
                mean = fma(load(mix, m * width + v), load(d_mix, m * width + v), mean)
        for m in range(L):
            g = load(d_mix, m * width + v)
            store(gradient, m * width + v, load(mix, m * width + v) * (g - mean) if s.softmax else g)
    for m in range(L):
        for position in range(L, width):
            gradient[m, position] = 0


def _mix(rows: int, columns: int) -> Any:
    """Compile the mixing of tiles of this size."""

    @inner
    def mix(params: Any, w: Any, first: int, last: int, at: int, v: int, out: int) -> None:
        P, height, zero = w.values.shape[1], w.mix.shape[1], fill(w.hidden.dtype.type(0))
        sums = tiled(load_tile(params.b_in, v, 1, columns, 0, 0), rows, columns)
        for i in range(first, last):
            value = load_tile(w.values, get(w.token, i) * P + v, 1, columns, 0, 0)
            sums = fma(spread_tile(w.coefficient, at, rows, 1, rows), value, sums)
            at += height
        store_tile(w.hidden, out, P, rows, largest(sums, zero))

    return mix


mix_four_by_two, mix_four, mix_eight = _mix(4, 2), _mix(4, 1), _mix(8, 1)


@inner
def mix_rows(s: Any, params: Any, w: Any, batch: int) -> int:
    """Compute the hidden rows relu(b_in + sum_i C[r, i] values[token_i]), labels and weights; return their number.

    Works on four rows and two vectors at a time, or eight rows of a single vector. Surplus rows are overwritten by the
    next sequence or never read.
    """
    count, place, rows, columns, start, label, weight = w.count, w.place, w.rows, w.columns, w.start, w.label, w.weight
    lanes, P, wide, number = lanes_of(w.hidden), w.hidden.shape[1], w.token.shape[1], weight.dtype.type
    row = 0
    for b in range(batch):
        first, many, last = b * wide, get(rows, b), b * wide + get(columns, b)
        tall = lanes == P and many > 4
        for r in range(0, many, 8 if tall else 4):
            for v in range(0, P, 2 * lanes):
                at, out = get(start, b) + r, (row + r) * P + v
                if tall and many - r > 4:
                    mix_eight(params, w, first, last, at, v, out)
                elif v + lanes < P:
                    mix_four_by_two(params, w, first, last, at, v, out)
                else:
                    mix_four(params, w, first, last, at, v, out)
        for r in range(many):
            i = first + (r if s.dot else get(place, b * s.L + r))
            put(label, row + r, get(count, i) - s.first)
            put(weight, row + r, number(get(count, i)) if s.dot else number(1))
        row += many
    return row


@inner
def logits_of(s: Any, params: Any, w: Any, rows: int) -> None:
    """Compute logits = hidden W_out + b_out."""
    logits, b_out, lanes, C = w.logits, params.b_out, lanes_of(w.logits), w.logits.shape[1]
    for v in range(0, C, lanes):
        bias = load(b_out, v)
        for at in range(v, rows * C, C):
            store(logits, at, bias)
    multiply(logits, w.hidden, w.out_t, rows, s.p, s.classes, True)


@inner
def cross_entropy(s: Any, w: Any, rows: int, norm: float) -> float:
    """Return the weighted sum of the rows' losses; set d_logits (classes, rows) to the gradient of that sum / `norm`.

    Works class by class with the rows side by side, which needs no sums across lanes and no padding of classes.
    """
    logits, d_logits, label, weight, tops = w.logits, w.d_logits, w.label, w.weight, w.top
    lanes, C, R, number, loss = lanes_of(logits), logits.shape[1], w.d_logits.shape[1], logits.dtype.type, 0.0
    last = s.classes * R
    inverse = number(1.0 / norm)
    transpose(d_logits, logits, rows, s.classes)
    for r in range(rows, rows + lanes):  # the last vector may reach beyond the rows
        put(weight, r, number(0))
    for v in range(0, rows, lanes):
        top = load(d_logits, v)
        for at in range(v + R, last, R):
            top = largest(load(d_logits, at), top)
        total_e = top - top
        for at in range(v, last, R):
            e = exp(load(d_logits, at) - top)
            total_e = total_e + e
            store(d_logits, at, e)
        weights = load(weight, v)
        loss += total(weights * log(total_e))
        factor = weights * fill(inverse) / total_e
        for at in range(v, last, R):
            store(d_logits, at, load(d_logits, at) * factor)
        store(tops, v, top)
    for r in range(rows):
        c, at = get(label, r), get(label, r) * R + r
        loss += get(weight, r) * (get(tops, r) - get(logits, r * C + c))
        put(d_logits, at, get(d_logits, at) - get(weight, r) * inverse)
    return loss


@inner
def readout_gradient(s: Any, params: Any, grads: Any, w: Any, rows: int) -> None:
    """Add to the gradients of W_out, b_out and b_in; leave that of the rows before the ReLU in d_hidden."""
    hidden, d_hidden, d_logits, d_b_in, d_b_out = w.hidden, w.d_hidden, w.d_logits, grads.b_in, grads.b_out
    lanes, P, R = lanes_of(hidden), hidden.shape[1], d_logits.shape[1]
    zero = fill(hidden.dtype.type(0))
    multiply(grads.out, d_logits, hidden, s.classes, rows, s.p, True)
    for c in range(s.classes):
        g = zero
        for at in range(c * R, c * R + rows, lanes):  # rows after the last have weight 0
            g = g + load(d_logits, at)
        d_b_out[0, c] += total(g)
    multiply(d_hidden, d_logits.T, params.out, rows, s.classes, s.p, False)
    for v in range(0, P, lanes):
        g = load(d_b_in, v)
        for at in range(v, rows * P, P):
            h = where_positive(load(hidden, at), load(d_hidden, at))
            store(d_hidden, at, h)
            g = g + h
        store(d_b_in, v, g)


def _values_gradient(columns: int) -> Any:
    """Compile the gradient of the values of four tokens, in so many vectors."""

    @inner
    def add_gradient(w: Any, i: int, last: int, c: int, h: int, many: int, v: int) -> None:
        P, height = w.values.shape[1], w.mix.shape[1]
        sums = gather_tile(w.d_values, v, 4, columns, w.token, i, P, last)
        for r in range(many):
            value = load_tile(w.d_hidden, h + r * P + v, 1, columns, 0, 0)
            sums = fma(spread_tile(w.coefficient, c + r, 4, height, last), value, sums)
        scatter_tile(w.d_values, v, w.token, i, P, last, sums)

    return add_gradient


def _coefficients_gradient(rows: int) -> Any:
    """Compile the gradient of so many coefficients of a token."""

    @inner
    def set_gradient(w: Any, t: int, h: int, out: int) -> None:
        P, sums = w.values.shape[1], tiled(fill(w.values.dtype.type(0)), rows, 1)
        for v in range(0, P, lanes_of(w.values)):
            sums = fma(load_tile(w.d_hidden, h + v, rows, 1, P, rows), load(w.values, t + v), sums)
        store_totals(w.d_coefficient, out, sums, False)

    return set_gradient


values_gradient_two, values_gradient_one = _values_gradient(2), _values_gradient(1)
four_coefficients, eight_coefficients = _coefficients_gradient(4), _coefficients_gradient(8)


@inner
def unmix_rows(w: Any, batch: int) -> None:
    """Add to the gradient of the token values and write that of the coefficients.

    Works on four tokens and two vectors, then eight or four rows at a time. Surplus work repeats the last token or is
    written to padding.
    """
    token, rows, columns, start = w.token, w.rows, w.columns, w.start
    lanes, P, height, wide = lanes_of(w.values), w.values.shape[1], w.mix.shape[1], token.shape[1]
    row = 0
    for b in range(batch):
        n, many, at, first = get(columns, b), get(rows, b), get(start, b), b * wide
        for i in range(0, n, 4):
            c = at + i * height
            for v in range(0, P, 2 * lanes):
                if v + lanes < P:
                    values_gradient_two(w, first + i, n - 1 - i, c, row * P, many, v)
                else:
                    values_gradient_one(w, first + i, n - 1 - i, c, row * P, many, v)
        for i in range(n):
            t, out = get(token, first + i) * P, at + i * height
            for r in range(0, many, 8):
                if many - r > 4:
                    eight_coefficients(w, t, (row + r) * P, out + r)
                else:
                    four_coefficients(w, t, (row + r) * P, out + r)
        row += many


@inner
def batch_loss(s: Any, params: Any, grads: Any, w: Any, batch: int) -> float:
    """Return the mean loss of a batch; compute the gradients of token values and coefficients."""
    rows, norm = mix_rows(s, params, w, batch), float(batch * s.L)
    logits_of(s, params, w, rows)
    loss = cross_entropy(s, w, rows, norm)
    readout_gradient(s, params, grads, w, rows)
    unmix_rows(w, batch)
    return loss / norm


@inner
def count_right(s: Any, params: Any, w: Any, batch: int) -> float:
    """Count a batch's right answers: all logits are finite, and the first of the largest is that of the count."""
    rows, right = mix_rows(s, params, w, batch), 0.0
    logits_of(s, params, w, rows)
    logits, C = w.logits, w.logits.shape[1]
    for r in range(rows):
        best, nothing = 0, get(logits, r * C) - get(logits, r * C)  # 0, or NaN if a logit is not finite
        for c in range(1, s.classes):
            nothing += get(logits, r * C + c) - get(logits, r * C + c)
            if get(logits, r * C + c) > get(logits, r * C + best):
                best = c
        if best == get(w.label, r) and nothing == 0:
            right += get(w.weight, r)
    return right
