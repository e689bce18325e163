"""From token values and mixing coefficients to the loss and back, a few sequences at a time so that their rows stay in
the cache.
"""

from __future__ import annotations

import math
from typing import Any

from interp.training.kernels.matmul import multiply
from interp.training.kernels.simd import (
    exp,
    fill,
    fma,
    inner,
    lanes_of,
    largest,
    load,
    peak,
    spread,
    store,
    total,
    where_positive,
)


@inner
def mix_rows(s: Any, params: Any, w: Any, first: int, last: int) -> None:
    """The hidden rows relu(b_in + sum_i C[r, i] values[token_i]) of sequences first..last-1, with labels and weights
    (not yet normalized).
    """
    token, count, place, rows, columns, start = w.token, w.count, w.place, w.rows, w.columns, w.start
    coefficient, values, hidden, label, weight, b_in = w.coefficient, w.values, w.hidden, w.label, w.weight, params.b_in
    lanes, P, height, dot = lanes_of(hidden), hidden.shape[1], w.mix.shape[1], s.dot
    zero = fill(hidden.dtype.type(0))
    row = 0
    for b in range(first, last):
        n = columns[b]
        by_row, by_column = (n, 1) if dot else (1, height)
        for v in range(0, P, lanes):
            bias = load(b_in, v)
            for r in range(rows[b]):
                at = start[b] + r * by_row
                h = bias
                for i in range(n):
                    h = fma(spread(coefficient, at), load(values, token[b, i] * P + v), h)
                    at += by_column
                store(hidden, (row + r) * P + v, largest(h, zero))
        for r in range(rows[b]):
            label[row + r] = count[b, r if dot else place[b, r]] - s.first
            weight[row + r] = count[b, r] if dot else 1
        row += rows[b]


@inner
def logits_of(s: Any, w: Any, rows: int) -> None:
    """logits = hidden W_out + b_out, with -inf in the padding."""
    logits, bias, lanes, C = w.logits, w.bias, lanes_of(w.logits), w.logits.shape[1]
    for v in range(0, C, lanes):
        for r in range(rows):
            store(logits, r * C + v, load(bias, v))
    multiply(logits, w.hidden, w.out_t, rows, s.p, True)


@inner
def cross_entropy(s: Any, w: Any, rows: int, norm: float) -> float:
    """The weighted sum of the rows' losses; turns the logits into the gradient of that sum over `norm`."""
    logits, label, weights = w.logits, w.label, w.weight
    lanes, C, loss = lanes_of(logits), logits.shape[1], 0.0
    inverse = logits.dtype.type(1.0 / norm)
    for r in range(rows):
        at = r * C
        top = load(logits, at)
        for v in range(lanes, C, lanes):
            top = largest(load(logits, at + v), top)
        highest = peak(top)
        top = fill(highest)
        norms = top - top
        right = logits[r, label[r]] - highest
        for v in range(0, C, lanes):
            e = exp(load(logits, at + v) - top)
            norms = norms + e
            store(logits, at + v, e)
        norm_r = total(norms)
        weight = weights[r]
        loss += weight * (math.log(norm_r) - right)
        factor = fill(weight * inverse / norm_r)
        for v in range(0, C, lanes):
            store(logits, at + v, load(logits, at + v) * factor)
        logits[r, label[r]] -= weight * inverse
    return loss


@inner
def readout_gradient(s: Any, params: Any, grads: Any, w: Any, rows: int) -> None:
    """Add to the gradients of W_out, b_out and b_in; leave the gradient of the hidden rows before the ReLU in
    d_hidden.
    """
    hidden, d_hidden, logits, d_b_in, d_b_out = w.hidden, w.d_hidden, w.logits, grads.b_in, grads.b_out
    lanes, P, C = lanes_of(hidden), hidden.shape[1], logits.shape[1]
    multiply(grads.out, logits.T, hidden, s.classes, rows, True)
    for v in range(0, C, lanes):
        g = load(d_b_out, v)
        for r in range(rows):
            g = g + load(logits, r * C + v)
        store(d_b_out, v, g)
    multiply(d_hidden, logits, params.out, rows, s.classes, False)
    for v in range(0, P, lanes):
        g = load(d_b_in, v)
        for at in range(v, rows * P, P):
            h = where_positive(load(hidden, at), load(d_hidden, at))
            store(d_hidden, at, h)
            g = g + h
        store(d_b_in, v, g)


@inner
def unmix_rows(s: Any, w: Any, first: int, last: int) -> None:
    """Add to the gradient of the token values; write the gradient of the coefficients of sequences first..last-1."""
    token, rows, columns, start = w.token, w.rows, w.columns, w.start
    coefficient, d_coefficient, values, d_values, d_hidden = (
        w.coefficient,
        w.d_coefficient,
        w.values,
        w.d_values,
        w.d_hidden,
    )
    lanes, P, height, dot = lanes_of(values), values.shape[1], w.mix.shape[1], s.dot
    zero = fill(values.dtype.type(0))
    row = 0
    for b in range(first, last):
        n = columns[b]
        by_row, by_column = (n, 1) if dot else (1, height)
        for i in range(n):
            t, at = token[b, i] * P, start[b] + i * by_column
            for v in range(0, P, lanes):
                g = load(d_values, t + v)
                for r in range(rows[b]):
                    g = fma(spread(coefficient, at + r * by_row), load(d_hidden, (row + r) * P + v), g)
                store(d_values, t + v, g)
            for r in range(rows[b]):
                g = zero
                for v in range(0, P, lanes):
                    g = fma(load(d_hidden, (row + r) * P + v), load(values, t + v), g)
                d_coefficient[at + r * by_row] = total(g)
        row += rows[b]


@inner
def chunks_loss(s: Any, params: Any, grads: Any, w: Any, batch: int) -> float:
    """The mean loss of a batch, and its gradients as far back as the token values and the coefficients."""
    loss, b, norm, chunk, height = 0.0, 0, float(batch * s.L), s.chunk, w.rows
    while b < batch:
        first, rows = b, 0
        while b < batch and rows < chunk:
            rows += height[b]
            b += 1
        mix_rows(s, params, w, first, b)
        logits_of(s, w, rows)
        loss += cross_entropy(s, w, rows, norm)
        readout_gradient(s, params, grads, w, rows)
        unmix_rows(s, w, first, b)
    return loss / norm


@inner
def chunks_logits(s: Any, params: Any, w: Any, batch: int, out: Any) -> None:
    """The logits of a batch, position by position: out (batch, L, classes)."""
    for b in range(batch):
        mix_rows(s, params, w, b, b + 1)
        logits_of(s, w, w.rows[b])
        for position in range(s.L):
            row = w.place[b, position] if s.dot else position
            for c in range(s.classes):
                out[b, position, c] = w.logits[row, c]
