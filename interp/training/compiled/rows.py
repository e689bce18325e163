"""Sums of rows and layer norm of rows, forward and backward, which several compiled loops share."""

import math
from typing import Any

from interp.training.compiled.vectors import fill, fma, inner, lanes_of, load, store, total


@inner
def add_rows(out: Any, x: Any, m: int) -> None:
    for at in range(0, m * out.shape[1], lanes_of(out)):
        store(out, at, load(out, at) + load(x, at))


@inner
def add_sum_of_rows(out: Any, x: Any, m: int) -> None:
    width = x.shape[1]
    for v in range(0, width, lanes_of(x)):
        s = load(out, v)
        for r in range(m):
            s = s + load(x, r * width + v)
        store(out, v, s)


@inner
def normalize(out: Any, hat: Any, inverse: Any, x: Any, w: Any, b: Any, mask: Any, m: int, d: int, eps: float) -> None:
    """Write the layer norm of each row to out, the normalized row to hat, and 1/deviation to inverse."""
    width, lanes, number = x.shape[1], lanes_of(x), x.dtype.type
    zero = fill(number(0))
    for r in range(m):
        first = r * width
        s = zero
        for v in range(0, width, lanes):
            s = s + load(x, first + v)
        mean = fill(number(total(s) / d))
        s = zero
        for v in range(0, width, lanes):
            c = (load(x, first + v) - mean) * load(mask, v)
            store(hat, first + v, c)
            s = fma(c, c, s)
        scale = number(1) / number(math.sqrt(total(s) / d + eps))
        inverse[r] = scale
        for v in range(0, width, lanes):
            h = load(hat, first + v) * fill(scale)
            store(hat, first + v, h)
            store(out, first + v, fma(h, load(w, v), load(b, v)))


@inner
def normalize_gradient(dx: Any, hat: Any, inverse: Any, w: Any, dw: Any, db: Any, mask: Any, m: int, d: int) -> None:
    """Replace the gradient of the output (in dx) by that of the input; add the gradients of w and b."""
    width, lanes, number = dx.shape[1], lanes_of(dx), dx.dtype.type
    zero = fill(number(0))
    for r in range(m):
        first = r * width
        s, t = zero, zero
        for v in range(0, width, lanes):
            g, h = load(dx, first + v), load(hat, first + v)
            store(dw, v, fma(g, h, load(dw, v)))
            store(db, v, g + load(db, v))
            g = g * load(w, v)
            s = s + g
            t = fma(g, h, t)
        mean, along, scale = fill(number(total(s) / d)), fill(number(total(t) / d)), fill(inverse[r])
        for v in range(0, width, lanes):
            g = fma(load(dx, first + v), load(w, v), zero - mean)
            g = fma(zero - load(hat, first + v), along, g)
            store(dx, first + v, g * scale * load(mask, v))
