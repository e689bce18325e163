"""Operations that move numbers between lanes: the transpose of a square block, and sums of several vectors at once."""

from typing import Any

from llvmlite import ir
from numba import types

from interp.training.compiled.vectors import Code, Vector, constant, operation, pick


@operation(lambda out, out_at, out_row, out_rows, a, *_: types.void(
    out, *[types.intp] * 3, a, *[types.intp] * 3))  # fmt: skip
def transpose_block(
    code: Code, out: Any, out_at: Any, out_row: Any, out_rows: Any, a: Any, a_at: Any, a_row: Any, a_rows: Any
) -> None:
    """Transpose a square block with a vector's length per side. It starts at flat position a_at; rows are a_row apart.

    Only the first a_rows rows are read, the others count as zeros; only the first out_rows are written (both >= 1).
    log2(lanes) stages each exchange the off-diagonal halves of blocks of twice the size.
    """
    vector, builder = Vector(code.kinds[4].dtype), code.builder
    n = vector.lanes

    def places(argument: int, array: Any, at: Any, row: Any, rows: Any) -> list[tuple[Any, Any]]:
        """Return the address of each row, or of the last row if it is beyond it, and whether the row exists."""
        numbers = [ir.Constant(rows.type, r) for r in range(n)]
        inside = [builder.icmp_signed("<", number, rows) for number in numbers]
        last = builder.sub(rows, ir.Constant(rows.type, 1))
        at_row = [builder.select(*pair, last) for pair in zip(inside, numbers)]
        return [(code.address(array, builder.add(at, builder.mul(i, row)), argument), yes)
                for i, yes in zip(at_row, inside)]  # fmt: skip

    rows = [builder.select(inside, code.read(vector, [address]), constant(vector, 0.0))
            for address, inside in places(4, a, a_at, a_row, a_rows)]  # fmt: skip
    size = 1
    while size < n:
        for r in range(n):
            if not r & size:
                x, y = rows[r], rows[r + size]
                rows[r] = pick(builder, x, y, [k if not k & size else n + k - size for k in range(n)])
                rows[r + size] = pick(builder, x, y, [k + size if not k & size else n + k for k in range(n)])
        size *= 2
    # numbers without a row are written to the last row, which is then overwritten
    for row, (address, _) in reversed([*zip(rows, places(0, out, out_at, out_row, out_rows))]):
        code.write(vector, [address], row)


def _folded(builder: Any, x: Any, y: Any, group: int) -> Any:
    """Fold each group of `group` lanes of x, then of y, in half: add the upper lanes to the lower ones."""
    n = x.type.count
    low = [k for start in range(0, 2 * n, group) for k in range(start, start + group // 2)]
    return builder.fadd(pick(builder, x, y, low), pick(builder, x, y, [k + group // 2 for k in low]))


@operation(lambda array, index, tile, add: types.void(array, types.intp, tile, types.boolean))
def store_totals(code: Code, array: Any, index: Any, tile: Any, add: Any) -> None:
    """Write the sums over the lanes of a tile's vectors (2, 4 or 8) to consecutive places from flat position `index`.

    add: add them to the numbers there.

    Pairs of vectors are folded until all sums are in one vector, then that vector until each sum has one lane.
    """
    kind, builder = code.kinds[2], code.builder
    vectors, group = kind.parts(builder, tile), kind.lanes
    many = len(vectors)
    while len(vectors) > 1:
        vectors = [_folded(builder, x, y, group) for x, y in zip(vectors[::2], vectors[1::2])]
        group //= 2
    (sums,) = vectors
    width = group
    while width > 1:
        width //= 2
        sums = builder.fadd(sums, pick(builder, sums, sums, [k ^ width for k in range(kind.lanes)]))
    chosen = pick(builder, sums, sums, [group * k for k in range(many)])
    place = builder.bitcast(code.address(array, index), chosen.type.as_pointer())
    before = builder.load(place, align=kind.dtype.bitwidth // 8)
    chosen = builder.select(add, builder.fadd(chosen, before), chosen)
    builder.store(chosen, place, align=kind.dtype.bitwidth // 8)
