"""Training in count space as one compiled loop: forward, hand-written backward and Adam (numba, the extra `fast`).

One layer of causal softmax attention without positions, read linearly (architecture/reduced.py): a row is a query
token and the multiplicities c_t of the keys it sees, and head h writes

    z_h = (sum_t c_t e^(s_ht) v_ht) / (sum_t c_t e^(s_ht)),        s_ht = q_h k_ht scale.

Everything except c depends only on the query token. So a batch is processed one query token at a time. Its rows are
side by side, one per lane of a vector. The numerators and denominators of all heads are one small matrix times the
matrix of multiplicities. Layer norm, queries, keys, values and the readout are tables over the vocabulary. The small
vector operations are shared with the histogram kernel and the encoder.
"""

from typing import Any

import numpy as np
from numba import njit

from interp.training.compiled.arrays import (
    adam_step,
    add_rows,
    add_sum_of_rows,
    clear,
    copy,
    multiply,
    normalize,
    normalize_gradient,
    transpose,
)
from interp.training.compiled.elementary import exp, log, store_totals
from interp.training.compiled.layout import sources
from interp.training.compiled.vectors import (
    fill,
    fma,
    inner,
    lanes_of,
    largest,
    load,
    load_tile,
    spread,
    store,
    tiled,
    total,
    where_positive,
)

# ---------------------------------------------------------------- small operations


@inner
def multiply_rows(out: Any, a: Any, b: Any, m: int, n: int, k: int, add: bool) -> None:
    """Compute out = a b^T for the first m rows of `a`, n rows of `b` and k columns (rounded up to whole vectors).

    add: add the result to `out`. Works on four rows of `b` at a time; the last ones repeat the last row, and what they
    give is written to the padding of `out`.
    """
    lanes, width = lanes_of(a), a.shape[1]
    for i in range(m):
        for j in range(0, n, 4):
            sums = tiled(fill(a.dtype.type(0)), 4, 1)
            for r in range(0, k, lanes):
                sums = fma(load(a, i * width + r), load_tile(b, j * width + r, 4, 1, width, n - 1 - j), sums)
            store_totals(out, i * out.shape[1] + j, sums, add)


@inner
def add_to_rows(out: Any, bias: Any, m: int) -> None:
    """Add bias[i] to every number of row i."""
    width = out.shape[1]
    for i in range(m):
        b = spread(bias, i)
        for v in range(i * width, (i + 1) * width, lanes_of(out)):
            store(out, v, load(out, v) + b)


@inner
def sum_rows(out: Any, a: Any, first: int, last: int) -> None:
    """Set out[0, i] to the sum of row i of `a`, whose padding is zero."""
    width = a.shape[1]
    for i in range(first, last):
        s = fill(a.dtype.type(0))
        for v in range(i * width, (i + 1) * width, lanes_of(a)):
            s = s + load(a, v)
        out[0, i] = total(s)


# ---------------------------------------------------------------- tables over the vocabulary


@inner
def forward_tables(s: Any, P: Any, w: Any) -> None:
    if s.norm:
        normalize(w.inner, w.hat, w.inverse, P.embed, P.norm_w, P.norm_b, w.mask, s.T, s.d, s.eps)
    else:
        copy(w.inner, P.embed)
    transpose(w.inner_t, w.inner, s.T, s.d)
    multiply(w.table, P.project, w.inner_t, 3 * s.width, s.d, s.T, False)
    add_to_rows(w.table, P.b_project, 3 * s.width)
    width = P.embed.shape[1]
    for t in range(s.T):
        for v in range(0, width, lanes_of(P.embed)):
            store(w.shifted, t * width + v, load(P.embed, t * width + v) + load(P.b_o, v))
    transpose(w.shifted_t, w.shifted, s.T, s.d)
    multiply(w.offset, P.out, w.shifted_t, s.classes, s.d, s.T, False)
    add_to_rows(w.offset, P.b_u, s.classes)
    transpose(w.w_o_t, P.w_o, s.width, s.d)
    multiply(w.readout, P.out, w.w_o_t, s.classes, s.d, s.width, False)


@inner
def backward_tables(s: Any, P: Any, G: Any, w: Any) -> None:
    """Compute the parameters' gradients (zero before the call) from those of the tables."""
    three, T = 3 * s.width, s.T
    multiply(G.out, w.d_offset, w.shifted, s.classes, T, s.d, False)
    multiply(G.out, w.d_readout, P.w_o, s.classes, s.width, s.d, True)
    multiply(G.w_o, w.d_readout.T, P.out, s.width, s.classes, s.d, False)
    multiply(w.d_shifted, w.d_offset.T, P.out, T, s.classes, s.d, False)
    if s.b_u:
        sum_rows(G.b_u, w.d_offset, 0, s.classes)
    if s.b_o:
        add_sum_of_rows(G.b_o, w.d_shifted, T)
    multiply(G.project, w.d_table, w.inner, three, T, s.d, False)
    if s.b_q:
        sum_rows(G.b_project, w.d_table, 0, s.width)
    if s.b_k:
        sum_rows(G.b_project, w.d_table, s.width, 2 * s.width)
    if s.b_v:
        sum_rows(G.b_project, w.d_table, 2 * s.width, three)
    multiply(w.d_inner, w.d_table.T, P.project, T, three, s.d, False)
    if s.norm:
        normalize_gradient(w.d_inner, w.hat, w.inverse, P.norm_w, G.norm_w, G.norm_b, w.mask, T, s.d)
    add_rows(w.d_inner, w.d_shifted, T)
    copy(G.embed, w.d_inner)


# ---------------------------------------------------------------- rows


@inner
def sort_rows(s: Any, w: Any, data: Any, first: int, last: int) -> None:
    """Sort the rows of these sentences by query token."""
    start, cursor, order, sentences = w.start, w.cursor, w.order, data.order
    for q in range(s.T):
        cursor[q] = 0
    for i in range(first, last):
        for row in range(sentences[i] * data.reads, (sentences[i] + 1) * data.reads):
            cursor[data.query[row]] += 1
    for q in range(s.T):
        start[q + 1] = start[q] + cursor[q]
        cursor[q] = start[q]
    for i in range(first, last):
        for row in range(sentences[i] * data.reads, (sentences[i] + 1) * data.reads):
            q = data.query[row]
            order[cursor[q]] = row
            cursor[q] += 1


@inner
def gather_counts(s: Any, w: Any, data: Any, first: int, n: int) -> None:
    """Place the multiplicities of n rows side by side; note which keys occur in any row and which in all rows.

    The last row is repeated to fill whole vectors.
    """
    counts, order, source, lanes, width = w.counts, w.order, data.counts, lanes_of(w.counts), w.counts.shape[1]
    columns, one = -(-n // lanes) * lanes, fill(w.counts.dtype.type(1))
    for j in range(columns):
        row = order[first + min(j, n - 1)]
        for t in range(s.T):
            counts[t, j] = source[row, t]
    for t in range(s.T):
        rows_with = one - one
        for v in range(t * width, t * width + columns, lanes):
            rows_with = rows_with + where_positive(load(counts, v), one)
        present = total(rows_with)
        w.present[0, t] = 1 if present > 0 else 0
        w.constant[0, t] = 1 if present == columns else 0


@inner
def weigh_keys(s: Any, w: Any, q: int) -> bool:
    """Set weights = e^(score - largest score), 0 for keys that do not occur, and mix = (weights times values, weights).

    Returns False if a row could underflow. A row's largest score is at least the largest score of keys common to all
    rows and the smallest score of keys that occur. Underflow is possible if both are too far below the largest score.
    """
    table, weights, mix, present, constant = w.table, w.weights, w.mix, w.present, w.constant
    number = table.dtype.type
    lanes, V, n, safe = lanes_of(table), table.shape[1], s.width, True
    scale = fill(number(s.scale))
    for h in range(s.heads):
        for v in range(0, V, lanes):
            score = fill(number(0))
            for j in range(h * s.d_head, (h + 1) * s.d_head):
                score = fma(spread(table, j * V + q), load(table, (n + j) * V + v), score)
            store(weights, h * V + v, score * scale)
    for h in range(s.heads):
        top, bottom, sure = number(-np.inf), number(np.inf), number(-np.inf)
        for t in range(s.T):
            if present[0, t] > 0:
                top, bottom = max(top, weights[h, t]), min(bottom, weights[h, t])
            if constant[0, t] > 0:
                sure = max(sure, weights[h, t])
        if top - max(bottom, sure) > s.safe:
            safe = False
        for v in range(0, V, lanes):
            e = exp(load(weights, h * V + v) - fill(top)) * load(present, v)
            store(weights, h * V + v, e)
            store(mix, (n + h) * V + v, e)
            for j in range(h * s.d_head, (h + 1) * s.d_head):
                store(mix, j * V + v, e * load(table, (2 * n + j) * V + v))
    return safe


@inner
def forward_rows(s: Any, w: Any, q: int, n: int) -> None:
    """Compute logits, head outputs z (first rows of `mixed`) and 1 / denominators (below) of n rows with query q."""
    mixed, logits, lanes, width = w.mixed, w.logits, lanes_of(w.mixed), w.mixed.shape[1]
    multiply(mixed, w.mix, w.counts, s.width + s.heads, s.T, n, False)
    one = fill(mixed.dtype.type(1))
    for h in range(s.heads):
        for v in range(0, n, lanes):
            below = (s.width + h) * width + v
            share = one / load(mixed, below)
            store(mixed, below, share)
            for at in range(h * s.d_head * width + v, (h + 1) * s.d_head * width, width):
                store(mixed, at, load(mixed, at) * share)
    for c in range(s.classes):
        constant = spread(w.offset, c * w.offset.shape[1] + q)
        for v in range(0, n, lanes):
            store(logits, c * width + v, constant)
    multiply(logits, w.readout, mixed, s.classes, s.width, n, True)


@inner
def cross_entropy(s: Any, w: Any, data: Any, first: int, n: int, rows: int) -> float:
    """Return the sum of the losses of n rows; replace the logits by the gradient of the mean over `rows` rows."""
    logits, share, order, target = w.logits, w.share, w.order, data.target
    lanes, width, number = lanes_of(logits), w.logits.shape[1], logits.dtype.type
    loss = 0.0
    for j in range(-(-n // lanes) * lanes):
        share[0, j] = 1 if j < n else 0  # the repeated last row counts once
    for j in range(n):
        loss -= logits[target[order[first + j]], j]
    each = fill(number(1.0 / rows))
    for v in range(0, n, lanes):
        top = load(logits, v)
        for c in range(1, s.classes):
            top = largest(load(logits, c * width + v), top)
        norm = fill(number(0))
        for c in range(s.classes):
            e = exp(load(logits, c * width + v) - top)
            store(logits, c * width + v, e)
            norm = norm + e
        counted = load(share, v)
        loss += total((log(norm) + top) * counted)
        factor = counted * each / norm
        for c in range(s.classes):
            store(logits, c * width + v, load(logits, c * width + v) * factor)
    for j in range(n):
        logits[target[order[first + j]], j] -= number(1.0 / rows)
    return loss


@inner
def backward_rows(s: Any, w: Any, q: int, n: int) -> None:
    """Add to the tables' gradients, from the gradient of the logits (in `logits`) of n rows with query token q."""
    mixed, d_mixed, logits, lanes, width = w.mixed, w.d_mixed, w.logits, lanes_of(w.mixed), w.mixed.shape[1]
    zero = fill(mixed.dtype.type(0))
    for c in range(s.classes):
        sum_of_row = zero
        for v in range(0, n, lanes):
            sum_of_row = sum_of_row + load(logits, c * width + v)
        w.d_offset[c, q] += total(sum_of_row)
    multiply_rows(w.d_readout, logits, mixed, s.classes, s.width, n, True)
    multiply(d_mixed, w.readout.T, logits, s.width, s.classes, n, False)
    for h in range(s.heads):
        for v in range(0, n, lanes):
            below, along = (s.width + h) * width + v, zero
            share = load(mixed, below)
            for at in range(h * s.d_head * width + v, (h + 1) * s.d_head * width, width):
                g = load(d_mixed, at) * share
                along = fma(g, load(mixed, at), along)
                store(d_mixed, at, g)
            store(d_mixed, below, zero - along)
    multiply_rows(w.d_mix, d_mixed, w.counts, s.width + s.heads, s.T, n, False)
    backward_weights(s, w, q)


@inner
def backward_weights(s: Any, w: Any, q: int) -> None:
    """Compute the gradients of queries, keys and values from that of `mix`."""
    table, d_table, d_mix, weights = w.table, w.d_table, w.d_mix, w.weights
    lanes, V, n, number = lanes_of(table), table.shape[1], s.width, table.dtype.type
    scale = fill(number(s.scale))
    for h in range(s.heads):
        for v in range(0, V, lanes):
            e, g = load(weights, h * V + v), load(d_mix, (n + h) * V + v)
            for j in range(h * s.d_head, (h + 1) * s.d_head):
                d_value, value = load(d_mix, j * V + v), (2 * n + j) * V + v
                g = fma(d_value, load(table, value), g)
                store(d_table, value, fma(d_value, e, load(d_table, value)))
            g = g * e * scale  # gradient of the score; subtracting the largest score does not change it
            for j in range(h * s.d_head, (h + 1) * s.d_head):
                key = (n + j) * V + v
                d_table[j, q] += total(g * load(table, key))
                store(d_table, key, fma(g, spread(table, j * V + q), load(d_table, key)))


# ---------------------------------------------------------------- a batch


@inner
def batch_gradient(s: Any, P: Any, G: Any, w: Any, data: Any, first: int, last: int) -> float:
    """Return the mean loss (nats) over the rows of sentences first..last-1; write its gradient to G (zero before)."""
    clear(w.d_table)
    clear(w.d_readout)
    clear(w.d_offset)
    forward_tables(s, P, w)
    sort_rows(s, w, data, first, last)
    rows, loss = (last - first) * data.reads, 0.0
    for q in range(s.T):
        at, end = w.start[q], w.start[q + 1]
        together = end - at
        while at < end:
            gather_counts(s, w, data, at, together)
            if not weigh_keys(s, w, q) and together > 1:
                together = 1  # slow but safe: in a single row, every key that occurs is in the row
                continue
            forward_rows(s, w, q, together)
            loss += cross_entropy(s, w, data, at, together, rows)
            backward_rows(s, w, q, together)
            at += together
    backward_tables(s, P, G, w)
    return loss / rows


@inner
def batch_logits(s: Any, P: Any, w: Any, data: Any, first: int, last: int, out: Any) -> None:
    forward_tables(s, P, w)
    sort_rows(s, w, data, first, last)
    for q in range(s.T):
        at, end = w.start[q], w.start[q + 1]
        together = end - at
        while at < end:
            gather_counts(s, w, data, at, together)
            if not weigh_keys(s, w, q) and together > 1:
                together = 1
                continue
            forward_rows(s, w, q, together)
            for j in range(together):
                for c in range(s.classes):
                    out[w.order[at + j], c] = w.logits[c, j]
            at += together


# ---------------------------------------------------------------- what Python calls


def _entry_points(sources: str) -> tuple[Any, Any]:
    """Compile once and cache on disk; `sources` is part of the cache key (see training/compiled/layout.py)."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def logits(s: Any, P: Any, w: Any, data: Any, out: Any) -> None:
        _ = sources
        size = len(w.order) // data.reads
        for first in range(0, len(data.order), size):
            batch_logits(s, P, w, data, first, min(first + size, len(data.order)), out)

    @njit(cache=True, nogil=True, error_model="numpy")
    def train(
        s: Any, P: Any, G: Any, w: Any, data: Any, flat: Any, grad: Any, m: Any, v: Any, skip: int, step: int,
        batch: int, rates: Any, beta1: float, beta2: float, eps: float,
    ) -> float:  # fmt: skip
        """Return the mean loss of the epoch; `grad` keeps the last batch's gradient."""
        _ = sources
        n, loss = len(data.order), 0.0
        for at in range(len(rates)):
            first, last = at * batch, min((at + 1) * batch, n)
            clear(grad)
            loss += batch_gradient(s, P, G, w, data, first, last) * (last - first)
            adam_step(flat, grad, m, v, skip, step + at + 1, rates[at], beta1, beta2, eps)
        return loss / n

    return logits, train


logits, train = _entry_points(sources(__name__))
