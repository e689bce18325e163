"""From token values and mixing coefficients to the loss and back."""

from __future__ import annotations

from typing import Any

from interp.training.compiled.elementary import exp, log
from interp.training.compiled.products import multiply, transpose
from interp.training.compiled.shuffles import store_totals
from interp.training.compiled.vectors import (
    fill,
    fma,
    inner,
    lanes_of,
    largest,
    load,
    spread,
    store,
    total,
    where_positive,
)


@inner
def mix_rows(s: Any, params: Any, w: Any, batch: int) -> int:
    """The hidden rows relu(b_in + sum_i C[r, i] values[token_i]), their labels and weights; how many there are.

    Rows are made four at a time; what is too many is overwritten by the next sequence or never read.
    """
    token, count, place, rows, columns, start = w.token, w.count, w.place, w.rows, w.columns, w.start
    coefficient, values, hidden, label, weight, b_in = w.coefficient, w.values, w.hidden, w.label, w.weight, params.b_in
    lanes, P, height, dot = lanes_of(hidden), hidden.shape[1], w.mix.shape[1], s.dot
    zero = fill(hidden.dtype.type(0))
    row = 0
    for b in range(batch):
        n = columns[b]
        for r in range(0, rows[b], 4):
            for v in range(0, P, lanes):
                bias = load(b_in, v)
                h0, h1, h2, h3, at = bias, bias, bias, bias, start[b] + r
                for i in range(n):
                    value = load(values, token[b, i] * P + v)
                    h0, h1 = fma(spread(coefficient, at), value, h0), fma(spread(coefficient, at + 1), value, h1)
                    h2, h3 = fma(spread(coefficient, at + 2), value, h2), fma(spread(coefficient, at + 3), value, h3)
                    at += height
                out = (row + r) * P + v
                store(hidden, out, largest(h0, zero))
                store(hidden, out + P, largest(h1, zero))
                store(hidden, out + 2 * P, largest(h2, zero))
                store(hidden, out + 3 * P, largest(h3, zero))
        for r in range(rows[b]):
            label[row + r] = count[b, r if dot else place[b, r]] - s.first
            weight[row + r] = count[b, r] if dot else 1
        row += rows[b]
    return row


@inner
def logits_of(s: Any, params: Any, w: Any, rows: int) -> None:
    """logits = hidden W_out + b_out."""
    logits, b_out, lanes, C = w.logits, params.b_out, lanes_of(w.logits), w.logits.shape[1]
    for v in range(0, C, lanes):
        bias = load(b_out, v)
        for at in range(v, rows * C, C):
            store(logits, at, bias)
    multiply(logits, w.hidden, w.out_t, rows, s.p, s.classes, True)


@inner
def cross_entropy(s: Any, w: Any, rows: int, norm: float) -> float:
    """The weighted sum of the rows' losses; d_logits (classes, rows) becomes the gradient of that sum over `norm`.

    Class after class with the rows side by side: no sums across lanes, and no work for the padding of the classes.
    """
    logits, d_logits, label, weight, tops = w.logits, w.d_logits, w.label, w.weight, w.top
    lanes, R, number, loss = lanes_of(logits), w.d_logits.shape[1], logits.dtype.type, 0.0
    last = s.classes * R
    inverse = number(1.0 / norm)
    transpose(d_logits, logits, rows, s.classes)
    for r in range(rows, rows + lanes):  # the last vector may reach beyond the rows
        weight[r] = 0
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
        loss += weight[r] * (tops[r] - logits[r, label[r]])
        d_logits[label[r], r] -= weight[r] * inverse
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
        for at in range(c * R, c * R + rows, lanes):  # rows beyond the last have weight 0
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


@inner
def unmix_rows(w: Any, batch: int) -> None:
    """Add to the gradient of the token values and write that of the coefficients.

    Four tokens, then four rows at a time; what is too many repeats the last token, or is written to the padding.
    """
    token, rows, columns, start = w.token, w.rows, w.columns, w.start
    coefficient, values, d_hidden, d_coefficient, d_values = (
        w.coefficient, w.values, w.d_hidden, w.d_coefficient, w.d_values,
    )  # fmt: skip
    lanes, P, height = lanes_of(values), values.shape[1], w.mix.shape[1]
    zero = fill(values.dtype.type(0))
    row = 0
    for b in range(batch):
        n = columns[b]
        for i in range(0, n, 4):
            i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
            t0, t1, t2, t3 = token[b, i] * P, token[b, i1] * P, token[b, i2] * P, token[b, i3] * P
            c0, c1, c2, c3 = (
                start[b] + i * height, start[b] + i1 * height, start[b] + i2 * height, start[b] + i3 * height,
            )  # fmt: skip
            for v in range(0, P, lanes):
                g0, g1 = load(d_values, t0 + v), load(d_values, t1 + v)
                g2, g3 = load(d_values, t2 + v), load(d_values, t3 + v)
                for r in range(rows[b]):
                    h = load(d_hidden, (row + r) * P + v)
                    g0, g1 = fma(spread(coefficient, c0 + r), h, g0), fma(spread(coefficient, c1 + r), h, g1)
                    g2, g3 = fma(spread(coefficient, c2 + r), h, g2), fma(spread(coefficient, c3 + r), h, g3)
                store(d_values, t0 + v, g0)
                store(d_values, t1 + v, g1)
                store(d_values, t2 + v, g2)
                store(d_values, t3 + v, g3)
        for i in range(n):
            t = token[b, i] * P
            for r in range(0, rows[b], 4):
                g0, g1, g2, g3, at = zero, zero, zero, zero, (row + r) * P
                for v in range(0, P, lanes):
                    value = load(values, t + v)
                    g0, g1 = fma(load(d_hidden, at + v), value, g0), fma(load(d_hidden, at + P + v), value, g1)
                    g2 = fma(load(d_hidden, at + 2 * P + v), value, g2)
                    g3 = fma(load(d_hidden, at + 3 * P + v), value, g3)
                store_totals(d_coefficient, start[b] + i * height + r, g0, g1, g2, g3)
        row += rows[b]


@inner
def batch_loss(s: Any, params: Any, grads: Any, w: Any, batch: int) -> float:
    """The mean loss of a batch, and its gradients as far back as the token values and the coefficients."""
    rows, norm = mix_rows(s, params, w, batch), float(batch * s.L)
    logits_of(s, params, w, rows)
    loss = cross_entropy(s, w, rows, norm)
    readout_gradient(s, params, grads, w, rows)
    unmix_rows(w, batch)
    return loss / norm


@inner
def batch_logits(s: Any, params: Any, w: Any, batch: int, out: Any) -> None:
    """The logits of a batch, position by position: out (batch, L, classes)."""
    logits_of(s, params, w, mix_rows(s, params, w, batch))
    row = 0
    for b in range(batch):
        for position in range(s.L):
            r = row + (w.place[b, position] if s.dot else position)
            for c in range(s.classes):
                out[b, position, c] = w.logits[r, c]
        row += w.rows[b]
