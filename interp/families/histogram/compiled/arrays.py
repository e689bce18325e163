"""Compiled loops over arrays whose rows are padded to whole vectors.

Products, transposes and copies of small matrices; Adam.
"""

import math
from typing import Any

from interp.families.histogram.compiled.elementary import transpose_block
from interp.families.histogram.compiled.vectors import (
    fill,
    fma,
    inner,
    lanes_of,
    load,
    load_tile,
    root,
    spread_tile,
    store,
    store_tile,
    tiled,
    total,
)


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


def _tiles(rows: int, columns: int) -> Any:
    """Compile the product for the columns from j on in tiles of this size."""

    @inner
    def product(out: Any, a: Any, b: Any, m: int, k: int, j: int, add: bool) -> None:
        width, row, step = out.shape[1], a.strides[0] // a.itemsize, a.strides[1] // a.itemsize
        for i in range(0, m, rows):
            at, last, sums = i * width + j, m - 1 - i, tiled(fill(out.dtype.type(0)), rows, columns)
            if add:
                sums = load_tile(out, at, rows, columns, width, last)
            for q in range(k):
                column = spread_tile(a, i * row + q * step, rows, row, last)
                sums = fma(column, load_tile(b, q * width + j, 1, columns, 0, 0), sums)
            store_tile(out, at, width, last, sums)

    return product


_two_columns, _one_column = _tiles(4, 2), _tiles(8, 1)


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


@inner
def power(base: float, exponent: int) -> float:
    """Return base^exponent, computed by multiplication so that every machine gets the same number; exponent >= 0."""
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@inner
def adam_step(
    flat: Any, grad: Any, m: Any, v: Any, first: int, step: int, lr: float, beta1: float, beta2: float, eps: float
) -> None:
    """Do Adam step number `step` (1, 2, ...) on all numbers from index `first`; lengths are whole vectors.

    This is algorithm 1 of Kingma and Ba (2015), as in torch.optim.Adam without weight decay.
    """
    number = flat.dtype.type
    keep1, take1 = fill(number(beta1)), fill(number(1.0 - beta1))
    keep2, take2 = fill(number(beta2)), fill(number(1.0 - beta2))
    correction = math.sqrt(1.0 - power(beta2, step))
    rate = fill(number(-lr * correction / (1.0 - power(beta1, step))))
    floor = fill(number(eps * correction))
    for at in range(first, len(flat), lanes_of(flat)):
        g = load(grad, at)
        m1 = fma(keep1, load(m, at), take1 * g)
        v1 = fma(keep2, load(v, at), take2 * (g * g))
        store(m, at, m1)
        store(v, at, v1)
        store(flat, at, load(flat, at) + rate * m1 / (root(v1) + floor))
