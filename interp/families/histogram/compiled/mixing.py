"""Mixing coefficients of a batch and their gradients.

Sequence b with n distinct tokens (BOS counts as one) and r rows has an r x n matrix C, which includes the residual. Its
mixed rows are C times the rows of its tokens. Dot-product mixing has one row per distinct token (equal tokens have
equal outputs), linear mixing one per position. The matrices are packed one after another, b's from start[b], column by
column, each padded to whole vectors, so that a vector holds several rows. Padding is finite and never used.
"""

from typing import Any

from interp.training.compiled.elementary import exp
from interp.training.compiled.products import clear, copy, transpose
from interp.training.compiled.vectors import at_lane, fill, fma, get, inner, lanes_of, largest, load, put, store


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
    place, start, mix, d_mix, d_coefficient, gradient, L = (
        w.place,
        w.start,
        w.mix,
        w.d_mix,
        w.d_coefficient,
        grads.mix,
        s.L,
    )
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
