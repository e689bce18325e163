"""Compute the loss from token values and mixing coefficients, and its gradients."""

from __future__ import annotations

from typing import Any

from interp.training.compiled.elementary import exp, log
from interp.training.compiled.products import multiply, transpose
from interp.training.compiled.shuffles import store_eight_totals, store_totals
from interp.training.compiled.vectors import (
    fill,
    fma,
    get,
    inner,
    lanes_of,
    largest,
    load,
    put,
    spread,
    store,
    total,
    where_positive,
)


@inner
def mix_rows(s: Any, params: Any, w: Any, batch: int) -> int:
    """Compute the hidden rows relu(b_in + sum_i C[r, i] values[token_i]), labels and weights; return their number.

    Works on four rows and two vectors at a time, or eight rows of a single vector. Surplus rows are overwritten by the
    next sequence or never read.
    """
    token, count, place, rows, columns, start = w.token, w.count, w.place, w.rows, w.columns, w.start
    coefficient, values, hidden, label, weight, b_in = w.coefficient, w.values, w.hidden, w.label, w.weight, params.b_in
    lanes, P, height, wide = lanes_of(hidden), hidden.shape[1], w.mix.shape[1], token.shape[1]
    zero, number = fill(hidden.dtype.type(0)), weight.dtype.type
    row = 0
    for b in range(batch):
        first, many, last = b * wide, get(rows, b), b * wide + get(columns, b)
        tall = lanes == P and many > 4
        for r in range(0, many, 8 if tall else 4):
            for v in range(0, P, 2 * lanes):
                h0, at, out = load(b_in, v), get(start, b) + r, (row + r) * P + v
                h1, h2, h3 = h0, h0, h0
                if tall and many - r > 4:
                    h4, h5, h6, h7 = h0, h0, h0, h0
                    for i in range(first, last):
                        value = load(values, get(token, i) * P + v)
                        h0, h1 = fma(spread(coefficient, at), value, h0), fma(spread(coefficient, at + 1), value, h1)
                        h2 = fma(spread(coefficient, at + 2), value, h2)
                        h3 = fma(spread(coefficient, at + 3), value, h3)
                        h4 = fma(spread(coefficient, at + 4), value, h4)
                        h5 = fma(spread(coefficient, at + 5), value, h5)
                        h6 = fma(spread(coefficient, at + 6), value, h6)
                        h7 = fma(spread(coefficient, at + 7), value, h7)
                        at += height
                    store(hidden, out + 4 * P, largest(h4, zero))
                    store(hidden, out + 5 * P, largest(h5, zero))
                    store(hidden, out + 6 * P, largest(h6, zero))
                    store(hidden, out + 7 * P, largest(h7, zero))
                elif v + lanes < P:
                    g0 = load(b_in, v + lanes)
                    g1, g2, g3 = g0, g0, g0
                    for i in range(first, last):
                        t = get(token, i) * P + v
                        value, other = load(values, t), load(values, t + lanes)
                        c0, c1 = spread(coefficient, at), spread(coefficient, at + 1)
                        c2, c3 = spread(coefficient, at + 2), spread(coefficient, at + 3)
                        h0, h1, h2, h3 = fma(c0, value, h0), fma(c1, value, h1), fma(c2, value, h2), fma(c3, value, h3)
                        g0, g1, g2, g3 = fma(c0, other, g0), fma(c1, other, g1), fma(c2, other, g2), fma(c3, other, g3)
                        at += height
                    store(hidden, out + lanes, largest(g0, zero))
                    store(hidden, out + lanes + P, largest(g1, zero))
                    store(hidden, out + lanes + 2 * P, largest(g2, zero))
                    store(hidden, out + lanes + 3 * P, largest(g3, zero))
                else:
                    for i in range(first, last):
                        value = load(values, get(token, i) * P + v)
                        h0, h1 = fma(spread(coefficient, at), value, h0), fma(spread(coefficient, at + 1), value, h1)
                        h2 = fma(spread(coefficient, at + 2), value, h2)
                        h3 = fma(spread(coefficient, at + 3), value, h3)
                        at += height
                store(hidden, out, largest(h0, zero))
                store(hidden, out + P, largest(h1, zero))
                store(hidden, out + 2 * P, largest(h2, zero))
                store(hidden, out + 3 * P, largest(h3, zero))
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


@inner
def unmix_rows(w: Any, batch: int) -> None:
    """Add to the gradient of the token values and write that of the coefficients.

    Works on four tokens and two vectors, then eight or four rows at a time. Surplus work repeats the last token or is
    written to padding.
    """
    token, rows, columns, start = w.token, w.rows, w.columns, w.start
    coefficient, values, d_hidden, d_coefficient, d_values = (
        w.coefficient, w.values, w.d_hidden, w.d_coefficient, w.d_values,
    )  # fmt: skip
    lanes, P, height, wide = lanes_of(values), values.shape[1], w.mix.shape[1], token.shape[1]
    zero = fill(values.dtype.type(0))
    row = 0
    for b in range(batch):
        n, many, at, first = get(columns, b), get(rows, b), get(start, b), b * wide
        last = first + n - 1
        for i in range(0, n, 4):
            i0, i1, i2, i3 = first + i, min(first + i + 1, last), min(first + i + 2, last), min(first + i + 3, last)
            t0, t1, t2, t3 = get(token, i0) * P, get(token, i1) * P, get(token, i2) * P, get(token, i3) * P
            c0, c1 = at + (i0 - first) * height, at + (i1 - first) * height
            c2, c3 = at + (i2 - first) * height, at + (i3 - first) * height
            for v in range(0, P, 2 * lanes):
                g0, g1 = load(d_values, t0 + v), load(d_values, t1 + v)
                g2, g3, h = load(d_values, t2 + v), load(d_values, t3 + v), row * P + v
                if v + lanes < P:
                    x = v + lanes
                    e0, e1 = load(d_values, t0 + x), load(d_values, t1 + x)
                    e2, e3 = load(d_values, t2 + x), load(d_values, t3 + x)
                    for r in range(many):
                        value, other = load(d_hidden, h), load(d_hidden, h + lanes)
                        a0, a1 = spread(coefficient, c0 + r), spread(coefficient, c1 + r)
                        a2, a3 = spread(coefficient, c2 + r), spread(coefficient, c3 + r)
                        g0, g1, g2, g3 = fma(a0, value, g0), fma(a1, value, g1), fma(a2, value, g2), fma(a3, value, g3)
                        e0, e1, e2, e3 = fma(a0, other, e0), fma(a1, other, e1), fma(a2, other, e2), fma(a3, other, e3)
                        h += P
                    store(d_values, t0 + x, e0)
                    store(d_values, t1 + x, e1)
                    store(d_values, t2 + x, e2)
                    store(d_values, t3 + x, e3)
                else:
                    for r in range(many):
                        value = load(d_hidden, h)
                        g0, g1 = (
                            fma(spread(coefficient, c0 + r), value, g0),
                            fma(spread(coefficient, c1 + r), value, g1),
                        )
                        g2, g3 = (
                            fma(spread(coefficient, c2 + r), value, g2),
                            fma(spread(coefficient, c3 + r), value, g3),
                        )
                        h += P
                store(d_values, t0 + v, g0)
                store(d_values, t1 + v, g1)
                store(d_values, t2 + v, g2)
                store(d_values, t3 + v, g3)
        for i in range(n):
            t, out = get(token, first + i) * P, at + i * height
            for r in range(0, many, 8):
                h, g0, g1, g2, g3 = (row + r) * P, zero, zero, zero, zero
                if many - r > 4:
                    g4, g5, g6, g7 = zero, zero, zero, zero
                    for v in range(0, P, lanes):
                        value = load(values, t + v)
                        g0, g1 = fma(load(d_hidden, h + v), value, g0), fma(load(d_hidden, h + P + v), value, g1)
                        g2 = fma(load(d_hidden, h + 2 * P + v), value, g2)
                        g3 = fma(load(d_hidden, h + 3 * P + v), value, g3)
                        g4 = fma(load(d_hidden, h + 4 * P + v), value, g4)
                        g5 = fma(load(d_hidden, h + 5 * P + v), value, g5)
                        g6 = fma(load(d_hidden, h + 6 * P + v), value, g6)
                        g7 = fma(load(d_hidden, h + 7 * P + v), value, g7)
                    store_eight_totals(d_coefficient, out + r, g0, g1, g2, g3, g4, g5, g6, g7)
                else:
                    for v in range(0, P, lanes):
                        value = load(values, t + v)
                        g0, g1 = fma(load(d_hidden, h + v), value, g0), fma(load(d_hidden, h + P + v), value, g1)
                        g2 = fma(load(d_hidden, h + 2 * P + v), value, g2)
                        g3 = fma(load(d_hidden, h + 3 * P + v), value, g3)
                    store_totals(d_coefficient, out + r, g0, g1, g2, g3)
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
def batch_logits(s: Any, params: Any, w: Any, batch: int, out: Any) -> None:
    """Write the logits of a batch, position by position, to out (batch, L, classes)."""
    logits_of(s, params, w, mix_rows(s, params, w, batch))
    row = 0
    for b in range(batch):
        for position in range(s.L):
            r = row + (w.place[b, position] if s.dot else position)
            for c in range(s.classes):
                out[b, position, c] = w.logits[r, c]
        row += w.rows[b]


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
