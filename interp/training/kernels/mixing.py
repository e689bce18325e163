"""Mixing coefficients of a batch and their gradients.

Sequence b with n distinct tokens (BOS one more) and r rows has a matrix C of r x n numbers, and its mixed rows are C
times the rows of its tokens; C holds the residual too. Dot-product mixing has one row per distinct token (equal tokens
have equal outputs), linear mixing one per position. The matrices are packed one behind the other: b's starts at
start[b], row by row for dot (steps n, 1), column by column for linear mixing (steps 1, padded L), whose columns are
sums of columns of the L x L matrix over the positions of a token.
"""

from __future__ import annotations

from typing import Any

from interp.training.kernels.simd import exp, fill, inner, lanes_of, largest, load, store


@inner
def lay_out(s: Any, w: Any, batch: int) -> None:
    """Rows, columns and start of every sequence's matrix, and BOS as the last token of each."""
    token, count, distinct, rows, columns, start = w.token, w.count, w.distinct, w.rows, w.columns, w.start
    at, height = 0, w.mix.shape[1]
    for b in range(batch):
        n = distinct[b]
        rows[b], columns[b], start[b] = n if s.dot else s.L, n, at
        if s.bos:
            token[b, n], count[b, n] = s.T, 1
            columns[b] += 1
        at += columns[b] * (n if s.dot else height)
    start[batch] = at


@inner
def dot_coefficients(s: Any, w: Any, batch: int) -> None:
    """C[i, j] = a[i, j] + (i = j): a is count_j score_ij, or its softmax over the tokens weighted by their counts."""
    token, count, rows, columns, start = w.token, w.count, w.rows, w.columns, w.start
    scores, attention, coefficient = w.scores, w.attention, w.coefficient
    scale, one, softmax = scores.dtype.type(s.scale), scores.dtype.type(1), s.softmax
    for b in range(batch):
        n, at = columns[b], start[b]
        for i in range(rows[b]):
            t = token[b, i]
            top = scores[t, t]
            for j in range(n):
                score = scores[t, token[b, j]]
                attention[at + j] = score * scale
                top = max(top, score)
            if softmax:
                for j in range(n):
                    attention[at + j] -= top * scale
            at += n
    if softmax:
        for at in range(0, start[batch], lanes_of(attention)):
            store(attention, at, exp(load(attention, at)))
    for b in range(batch):
        n, at = columns[b], start[b]
        for i in range(rows[b]):
            norm = one - one
            for j in range(n):
                attention[at + j] *= count[b, j]
                norm += attention[at + j]
            norm = one / norm if softmax else one
            for j in range(n):
                attention[at + j] *= norm
                coefficient[at + j] = attention[at + j]
            coefficient[at + i] += one
            at += n


@inner
def dot_gradient(s: Any, w: Any, batch: int) -> None:
    """From the gradient of C to the gradient of the score table, kept in both orientations."""
    token, count, rows, columns, start = w.token, w.count, w.rows, w.columns, w.start
    attention, d_coefficient, d_scores, d_scores_t = w.attention, w.d_coefficient, w.d_scores, w.d_scores_t
    scale, softmax = d_scores.dtype.type(s.scale), s.softmax
    d_scores[:] = 0
    d_scores_t[:] = 0
    for b in range(batch):
        n, at = columns[b], start[b]
        for i in range(rows[b]):
            t = token[b, i]
            mean = scale - scale
            if softmax:
                for j in range(n):
                    mean += attention[at + j] * d_coefficient[at + j]
            for j in range(n):
                u = token[b, j]
                g = scale * (attention[at + j] if softmax else count[b, j]) * (d_coefficient[at + j] - mean)
                d_scores[t, u] += g
                d_scores_t[u, t] += g
            at += n


@inner
def linear_coefficients(s: Any, params: Any, w: Any, batch: int) -> None:
    """C[l, i] = (position l holds token i) + the sum of A[l, m] over the positions m of token i. A: W_mix or its
    softmax over m.
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
        effective[:] = mix
    zero, one = fill(mix.dtype.type(0)), mix.dtype.type(1)
    for b in range(batch):
        first = start[b]
        for at in range(first, start[b + 1], lanes):
            store(coefficient, at, zero)
        for m in range(L):
            column = first + place[b, m] * width
            for v in range(0, width, lanes):
                store(coefficient, column + v, load(coefficient, column + v) + load(effective, m * width + v))
        for m in range(L):
            coefficient[first + place[b, m] * width + m] += one


@inner
def linear_gradient(s: Any, grads: Any, w: Any, batch: int) -> None:
    """From the gradient of C to the gradient of W_mix."""
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
    d_mix[:] = 0
    for b in range(batch):
        for m in range(L):
            column = start[b] + place[b, m] * width
            for v in range(0, width, lanes):
                store(d_mix, m * width + v, load(d_mix, m * width + v) + load(d_coefficient, column + v))
    zero = fill(mix.dtype.type(0))
    for v in range(0, width, lanes):
        mean = zero
        if s.softmax:
            for m in range(L):
                mean = mean + load(mix, m * width + v) * load(d_mix, m * width + v)
        for m in range(L):
            g = load(d_mix, m * width + v)
            store(gradient, m * width + v, load(mix, m * width + v) * (g - mean) if s.softmax else g)
