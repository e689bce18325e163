"""The published encoder as one compiled loop: forward, hand-written backward and Adam, string after string.

The layers have heads with biases, post-layer-norm and ReLU neurons; one scalar is read at one row (Nowak et al. 2022,
section 4.2). A string is represented by its distinct rows, with the read row first; in the last layer only that row
has a query. Small vector operations are shared by all compiled loops. Needs numba, the optional extra `fast`.

Row-vector convention: each product y = x W has the gradients dx = dy W^T and dW = x^T dy. Weights are transposed once
per step, so that all three products read rows of whole vectors. Arrays are padded with zeros, whose gradients are zero.
"""

import math
from typing import Any

from numba import njit

from interp.training.compiled.arrays import (
    adam_step,
    add_rows,
    add_sum_of_rows,
    clear,
    multiply,
    normalize,
    normalize_gradient,
    transpose,
)
from interp.training.compiled.elementary import exp
from interp.training.compiled.layout import sources
from interp.training.compiled.vectors import fill, fma, inner, lanes_of, largest, load, store, total, where_positive

# ---------------------------------------------------------------- parts of a layer


@inner
def set_rows(out: Any, bias: Any, m: int) -> None:
    """Copy one row to all rows."""
    width = out.shape[1]
    for v in range(0, width, lanes_of(out)):
        b = load(bias, v)
        for r in range(m):
            store(out, r * width + v, b)


@inner
def softmax_rows(p: Any, log_counts: Any, string: int, m: int, n: int, factor: float) -> None:
    """Replace p by the softmax of p factor + ln(multiplicity) over n keys; the padding of a row becomes zero."""
    width, lanes, number = p.shape[1], lanes_of(p), p.dtype.type
    scale, base = fill(number(factor)), string * log_counts.shape[1]
    for r in range(m):
        first = r * width
        for v in range(0, n, lanes):
            store(p, first + v, fma(load(p, first + v), scale, load(log_counts, base + v)))
        top = p[r, 0]
        for j in range(1, n):
            top = max(top, p[r, j])
        high, s = fill(top), fill(number(0))
        for v in range(0, n, lanes):
            e = exp(load(p, first + v) - high)
            store(p, first + v, e)
            s = s + e
        share = fill(number(1) / total(s))
        for v in range(0, n, lanes):
            store(p, first + v, load(p, first + v) * share)


@inner
def softmax_gradient(dp: Any, p: Any, m: int, n: int, factor: float) -> None:
    """Replace the gradient of the weights (in dp) by that of the raw scores."""
    width, lanes, number = p.shape[1], lanes_of(p), p.dtype.type
    for r in range(m):
        first = r * width
        s = fill(number(0))
        for v in range(0, n, lanes):
            s = fma(load(p, first + v), load(dp, first + v), s)
        mean, scale = fill(total(s)), fill(number(factor))
        for v in range(0, n, lanes):
            store(dp, first + v, load(p, first + v) * (load(dp, first + v) - mean) * scale)


@inner
def relu_rows(x: Any, m: int) -> None:
    zero = fill(x.dtype.type(0))
    for at in range(0, m * x.shape[1], lanes_of(x)):
        store(x, at, largest(load(x, at), zero))


@inner
def mask_rows(dx: Any, x: Any, m: int) -> None:
    """Set the gradient to zero where the neuron is inactive."""
    for at in range(0, m * x.shape[1], lanes_of(x)):
        store(dx, at, where_positive(load(x, at), load(dx, at)))


# ---------------------------------------------------------------- a string


@inner
def forward(s: Any, P: Any, w: Any, data: Any, i: int) -> float:
    """Return the scalar of string i; store in w everything that the backward pass needs."""
    n, factor = data.rows[i], data.factor[i]
    x, width, lanes = w.x[0], w.x.shape[2], lanes_of(w.x)
    for r in range(n):
        token, code = data.tokens[i, r] * width, data.codes[i, r] * width
        for v in range(0, width, lanes):
            store(x, r * width + v, load(P.embed, token + v) + load(data.table, code + v))
    for layer in range(s.layers):
        asking = 1 if layer == s.layers - 1 else n
        x, mid, out = w.x[layer], w.mid[layer], w.x[layer + 1]
        set_rows(out, P.bO[layer], asking)
        add_rows(out, x, asking)
        for h in range(s.heads):
            q, k, v, p, z = w.q[layer, h], w.k[layer, h], w.v[layer, h], w.p[layer, h], w.z[layer, h]
            set_rows(q, P.bQ[layer, h], asking)
            set_rows(k, P.bK[layer, h], n)
            set_rows(v, P.bV[layer, h], n)
            multiply(q, x, P.WQ[layer, h], asking, s.d, s.dh, True)
            multiply(k, x, P.WK[layer, h], n, s.d, s.dh, True)
            multiply(v, x, P.WV[layer, h], n, s.d, s.dh, True)
            transpose(w.flip, k, n, s.dh)
            multiply(p, q, w.flip, asking, s.dh, n, False)
            softmax_rows(p, data.log_counts, i, asking, n, factor)
            multiply(z, p, v, asking, n, s.dh, False)
            multiply(out, z, P.WO[layer, h], asking, s.dh, s.d, True)
        normalize(mid, w.hat1[layer], w.r1[layer], out, P.w1[layer], P.b1[layer], w.mask, asking, s.d, s.eps)
        hidden = w.hidden[layer]
        set_rows(hidden, P.bin[layer], asking)
        multiply(hidden, mid, P.Win[layer], asking, s.d, s.f, True)
        relu_rows(hidden, asking)
        set_rows(out, P.bout[layer], asking)
        add_rows(out, mid, asking)
        multiply(out, hidden, P.Wout[layer], asking, s.f, s.d, True)
        normalize(out, w.hat2[layer], w.r2[layer], out, P.w2[layer], P.b2[layer], w.mask, asking, s.d, s.eps)
    last, answer = w.x[s.layers], fill(w.x.dtype.type(0))
    for v in range(0, width, lanes):
        answer = fma(load(last, v), load(P.U, v), answer)
    return total(answer) + P.bU[0]


@inner
def backward(s: Any, P: Any, G: Any, w: Any, data: Any, i: int, slope: float) -> None:
    """Add `slope` times the gradient of the scalar to G; call it after the forward pass of the same string."""
    n, factor, number = data.rows[i], data.factor[i], w.x.dtype.type
    width, lanes, dx, dmid = w.x.shape[2], lanes_of(w.x), w.dx, w.dmid
    last, by = w.x[s.layers], fill(number(slope))
    for v in range(0, width, lanes):
        store(dx, v, by * load(P.U, v))
        store(G.U, v, fma(by, load(last, v), load(G.U, v)))
    G.bU[0] += slope
    for layer in range(s.layers - 1, -1, -1):
        asking = 1 if layer == s.layers - 1 else n
        x, mid, hidden = w.x[layer], w.mid[layer], w.hidden[layer]
        # dx: the gradient of the layer's output, then of the sum before the second norm
        normalize_gradient(dx, w.hat2[layer], w.r2[layer], P.w2[layer], G.w2[layer], G.b2[layer], w.mask, asking, s.d)
        for at in range(0, asking * width, lanes):
            store(dmid, at, load(dx, at))
        add_sum_of_rows(G.bout[layer], dx, asking)
        multiply(G.Wout[layer], hidden.T, dx, s.f, asking, s.d, True)
        multiply(w.dhidden, dx, w.Woutt[layer], asking, s.d, s.f, False)
        mask_rows(w.dhidden, hidden, asking)
        add_sum_of_rows(G.bin[layer], w.dhidden, asking)
        multiply(G.Win[layer], mid.T, w.dhidden, s.d, asking, s.f, True)
        multiply(dmid, w.dhidden, w.Wint[layer], asking, s.f, s.d, True)
        # dmid: the gradient of the first norm's output, then of the sum before it
        normalize_gradient(dmid, w.hat1[layer], w.r1[layer], P.w1[layer], G.w1[layer], G.b1[layer], w.mask, asking, s.d)
        add_sum_of_rows(G.bO[layer], dmid, asking)
        zero = fill(number(0))
        for at in range(0, n * width, lanes):
            store(dx, at, load(dmid, at) if at < asking * width else zero)
        for h in range(s.heads):
            q, k, v, p, z = w.q[layer, h], w.k[layer, h], w.v[layer, h], w.p[layer, h], w.z[layer, h]
            multiply(G.WO[layer, h], z.T, dmid, s.dh, asking, s.d, True)
            multiply(w.dz, dmid, w.WOt[layer, h], asking, s.d, s.dh, False)
            multiply(w.dv, p.T, w.dz, n, asking, s.dh, False)
            transpose(w.flip, v, n, s.dh)
            multiply(w.dp, w.dz, w.flip, asking, s.dh, n, False)
            softmax_gradient(w.dp, p, asking, n, factor)
            multiply(w.dq, w.dp, k, asking, n, s.dh, False)
            multiply(w.dk, w.dp.T, q, n, asking, s.dh, False)
            add_sum_of_rows(G.bQ[layer, h], w.dq, asking)
            add_sum_of_rows(G.bK[layer, h], w.dk, n)
            add_sum_of_rows(G.bV[layer, h], w.dv, n)
            multiply(G.WQ[layer, h], x.T, w.dq, s.d, asking, s.dh, True)
            multiply(G.WK[layer, h], x.T, w.dk, s.d, n, s.dh, True)
            multiply(G.WV[layer, h], x.T, w.dv, s.d, n, s.dh, True)
            multiply(dx, w.dq, w.WQt[layer, h], asking, s.dh, s.d, True)
            multiply(dx, w.dk, w.WKt[layer, h], n, s.dh, s.d, True)
            multiply(dx, w.dv, w.WVt[layer, h], n, s.dh, s.d, True)
    for r in range(n):
        token = data.tokens[i, r] * width
        for v in range(0, width, lanes):
            store(G.embed, token + v, load(G.embed, token + v) + load(dx, r * width + v))


@inner
def transpose_weights(s: Any, P: Any, w: Any) -> None:
    for layer in range(s.layers):
        for h in range(s.heads):
            transpose(w.WQt[layer, h], P.WQ[layer, h], s.d, s.dh)
            transpose(w.WKt[layer, h], P.WK[layer, h], s.d, s.dh)
            transpose(w.WVt[layer, h], P.WV[layer, h], s.d, s.dh)
            transpose(w.WOt[layer, h], P.WO[layer, h], s.dh, s.d)
        transpose(w.Wint[layer], P.Win[layer], s.d, s.f)
        transpose(w.Woutt[layer], P.Wout[layer], s.f, s.d)


@inner
def batch_gradient(s: Any, P: Any, G: Any, w: Any, data: Any, first: int, last: int) -> float:
    """Return the sum of the losses of strings first..last-1 (nats); add the gradient of their mean to G."""
    transpose_weights(s, P, w)
    loss = 0.0
    for i in range(first, last):
        out = float(forward(s, P, w, data, i))
        label, tail = data.labels[i], math.exp(-abs(out))
        loss += max(out, 0.0) - out * label + math.log1p(tail)
        sigmoid = (1.0 if out >= 0 else tail) / (1.0 + tail)
        backward(s, P, G, w, data, i, (sigmoid - label) / (last - first))
    return loss


# ---------------------------------------------------------------- what Python calls


def _entry_points(sources: str) -> tuple[Any, Any]:
    """Compile once and cache on disk; `sources` is part of the cache key (see training/compiled/layout.py)."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def answers(s: Any, P: Any, w: Any, data: Any, out: Any) -> None:
        _ = sources
        for i in range(len(data.rows)):
            out[i] = forward(s, P, w, data, i)

    @njit(cache=True, nogil=True, error_model="numpy")
    def train(
        s: Any, P: Any, G: Any, w: Any, data: Any, flat: Any, grad: Any, m: Any, v: Any, skip: int, step: int,
        batch: int, rates: Any, beta1: float, beta2: float, eps: float,
    ) -> float:  # fmt: skip
        _ = sources
        n, loss = len(data.rows), 0.0
        for at in range(len(rates)):
            clear(grad)
            loss += batch_gradient(s, P, G, w, data, at * batch, min((at + 1) * batch, n))
            adam_step(flat, grad, m, v, skip, step + at + 1, rates[at], beta1, beta2, eps)
        return loss / n

    return answers, train


answers, train = _entry_points(sources(__name__))
