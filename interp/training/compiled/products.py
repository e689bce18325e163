"""Small matrix products, transposes and copies of arrays whose rows are padded to whole vectors."""

from __future__ import annotations

from typing import Any

from interp.training.compiled.shuffles import transpose_block
from interp.training.compiled.vectors import fill, fma, inner, lanes_of, load, spread, store, total


@inner
def multiply(out: Any, a: Any, b: Any, m: int, k: int, n: int, add: bool) -> None:
    """Compute out (m, n) = a (m, k) @ b (k, n), or add it to `out` if `add`; n is rounded up to whole vectors.

    `out` and `b` are C-contiguous with the same padded width; `a` is read number by number and may be a transposed
    view. Tiles of 4 rows and 2 vectors, or 8 rows and the last vector, keep 8 sums in registers: enough to hide the
    latency of the multiply-add. The last tile of a column repeats the last row: a tile reads before it writes, so the
    row gets the same numbers again. Terms are added in order, independent of the tiles.
    """
    lanes = lanes_of(out)
    for j in range(0, n, 2 * lanes):
        if j + lanes < n:
            _two_columns(out, a, b, m, k, j, add)
        else:
            _one_column(out, a, b, m, k, j, add)


@inner
def _two_columns(out: Any, a: Any, b: Any, m: int, k: int, j: int, add: bool) -> None:
    lanes, width = lanes_of(out), out.shape[1]
    row, step = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize
    zero = fill(out.dtype.type(0))
    for i in range(0, m, 4):
        i1, i2, i3 = min(i + 1, m - 1), min(i + 2, m - 1), min(i + 3, m - 1)
        o0, o1, o2, o3 = i * width + j, i1 * width + j, i2 * width + j, i3 * width + j
        p0, p1, p2, p3, q = i * row, i1 * row, i2 * row, i3 * row, j
        c0, c1, c2, c3, e0, e1, e2, e3 = zero, zero, zero, zero, zero, zero, zero, zero
        if add:
            c0, c1, c2, c3 = load(out, o0), load(out, o1), load(out, o2), load(out, o3)
            e0, e1 = load(out, o0 + lanes), load(out, o1 + lanes)
            e2, e3 = load(out, o2 + lanes), load(out, o3 + lanes)
        for _ in range(k):
            v, w = load(b, q), load(b, q + lanes)
            s0, s1, s2, s3 = spread(a, p0), spread(a, p1), spread(a, p2), spread(a, p3)
            c0, e0 = fma(s0, v, c0), fma(s0, w, e0)
            c1, e1 = fma(s1, v, c1), fma(s1, w, e1)
            c2, e2 = fma(s2, v, c2), fma(s2, w, e2)
            c3, e3 = fma(s3, v, c3), fma(s3, w, e3)
            p0, p1, p2, p3, q = p0 + step, p1 + step, p2 + step, p3 + step, q + width
        store(out, o0, c0)
        store(out, o1, c1)
        store(out, o2, c2)
        store(out, o3, c3)
        store(out, o0 + lanes, e0)
        store(out, o1 + lanes, e1)
        store(out, o2 + lanes, e2)
        store(out, o3 + lanes, e3)


@inner
def _one_column(out: Any, a: Any, b: Any, m: int, k: int, j: int, add: bool) -> None:
    width = out.shape[1]
    row, step = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize
    zero = fill(out.dtype.type(0))
    for i in range(0, m, 8):
        i1, i2, i3 = min(i + 1, m - 1), min(i + 2, m - 1), min(i + 3, m - 1)
        i4, i5, i6, i7 = min(i + 4, m - 1), min(i + 5, m - 1), min(i + 6, m - 1), min(i + 7, m - 1)
        o0, o1, o2, o3 = i * width + j, i1 * width + j, i2 * width + j, i3 * width + j
        o4, o5, o6, o7 = i4 * width + j, i5 * width + j, i6 * width + j, i7 * width + j
        p0, p1, p2, p3, q, at = i * row, i1 * row, i2 * row, i3 * row, j, 0
        p4, p5, p6, p7 = i4 * row, i5 * row, i6 * row, i7 * row
        c0, c1, c2, c3, c4, c5, c6, c7 = zero, zero, zero, zero, zero, zero, zero, zero
        if add:
            c0, c1, c2, c3 = load(out, o0), load(out, o1), load(out, o2), load(out, o3)
            c4, c5, c6, c7 = load(out, o4), load(out, o5), load(out, o6), load(out, o7)
        for _ in range(k):
            v = load(b, q)
            c0, c1 = fma(spread(a, p0 + at), v, c0), fma(spread(a, p1 + at), v, c1)
            c2, c3 = fma(spread(a, p2 + at), v, c2), fma(spread(a, p3 + at), v, c3)
            c4, c5 = fma(spread(a, p4 + at), v, c4), fma(spread(a, p5 + at), v, c5)
            c6, c7 = fma(spread(a, p6 + at), v, c6), fma(spread(a, p7 + at), v, c7)
            at, q = at + step, q + width
        store(out, o0, c0)
        store(out, o1, c1)
        store(out, o2, c2)
        store(out, o3, c3)
        store(out, o4, c4)
        store(out, o5, c5)
        store(out, o6, c6)
        store(out, o7, c7)


@inner
def multiply_column(out: Any, column: int, a: Any, b: Any, row: int, m: int) -> None:
    """Set out[i, column] to the inner product of row i of `a` and one row of `b` (of equal padded width), for i < m."""
    lanes, width = lanes_of(a), a.shape[1]
    for i in range(m):
        product = fill(a.dtype.type(0))
        for v in range(0, width, lanes):
            product = fma(load(a, i * width + v), load(b, row * width + v), product)
        out[i, column] = total(product)


@inner
def clear(out: Any) -> None:
    """Fill a C-contiguous array with zeros (numba takes seconds to compile `out[:] = 0`)."""
    zero = fill(out.dtype.type(0))
    for at in range(0, out.size, lanes_of(out)):
        store(out, at, zero)


@inner
def copy(out: Any, a: Any) -> None:
    for at in range(0, out.size, lanes_of(out)):
        store(out, at, load(a, at))


@inner
def transpose(out: Any, a: Any, m: int, n: int) -> None:
    """Set out[j, i] = a[i, j] for i < m, j < n, and the padding of out's first n rows to zero."""
    lanes, height, width = lanes_of(out), a.shape[1], out.shape[1]
    for i in range(0, m, lanes):
        for j in range(0, n, lanes):
            transpose_block(out, j * width + i, width, n - j, a, i * height + j, height, m - i)
