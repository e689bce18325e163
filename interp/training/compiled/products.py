"""Small matrix products, transposes and copies of arrays whose rows are padded to whole vectors."""

from typing import Any

from interp.training.compiled.shuffles import transpose_block
from interp.training.compiled.vectors import (
    fill,
    fma,
    inner,
    lanes_of,
    load,
    load_tile,
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
