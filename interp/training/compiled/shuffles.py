"""Operations that move numbers between lanes: the transpose of a square block, and four sums at once."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from interp.training.compiled.vectors import Vector, address_of, as_vector_pointer, constant, intrinsic


def _pick(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Pick lanes by number from a followed by b."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


@intrinsic
def transpose_block(
    typingctx: Any, out: Any, out_at: Any, out_row: Any, out_rows: Any, a: Any, a_at: Any, a_row: Any, a_rows: Any
) -> Any:
    """Transpose a square block with a vector's length per side. It starts at flat position a_at; rows are a_row apart.

    Only the first a_rows rows are read, the others count as zeros; only the first out_rows are written (both >= 1).
    log2(lanes) stages each exchange the off-diagonal halves of blocks of twice the size.
    """
    vector = Vector(a.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def place(array: int, r: int) -> tuple[Any, Any]:
            """Return the address of row r, or of the last row if r is beyond it, and whether row r exists."""
            at, row, rows = args[array + 1 : array + 4]
            number = ir.Constant(rows.type, r)
            inside = builder.icmp_signed("<", number, rows)
            index = builder.select(inside, number, builder.sub(rows, ir.Constant(rows.type, 1)))
            address = address_of(
                context, builder, signature.args[array], args[array], builder.add(at, builder.mul(index, row))
            )
            return as_vector_pointer(builder, address, vector), inside

        n, align = vector.lanes, vector.dtype.bitwidth // 8
        rows = []
        for r in range(n):
            pointer, inside = place(4, r)
            rows.append(builder.select(inside, builder.load(pointer, align=align), constant(vector, 0.0)))
        size = 1
        while size < n:
            for r in range(n):
                if not r & size:
                    a, b = rows[r], rows[r + size]
                    rows[r] = _pick(builder, a, b, [k if not k & size else n + k - size for k in range(n)])
                    rows[r + size] = _pick(builder, a, b, [k + size if not k & size else n + k for k in range(n)])
            size *= 2
        for r in reversed(range(n)):  # numbers without a row are written to the last row, which is then overwritten
            builder.store(rows[r], place(0, r)[0], align=align)
        return context.get_dummy_value()

    index = types.intp
    return types.void(out, index, index, index, a, index, index, index), codegen


def _folded(builder: Any, x: Any, y: Any, group: int) -> Any:
    """Fold each group of `group` lanes of x, then of y, in half: add the upper lanes to the lower ones."""
    n = x.type.count
    low = [k for start in range(0, 2 * n, group) for k in range(start, start + group // 2)]
    return builder.fadd(_pick(builder, x, y, low), _pick(builder, x, y, [k + group // 2 for k in low]))


def _store_totals(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Fold pairs of vectors until all sums are in one vector, then fold that vector until each sum has one lane."""
    vectors, group = list(args[2:]), signature.args[2].lanes
    many = len(vectors)
    while len(vectors) > 1:
        vectors = [_folded(builder, x, y, group) for x, y in zip(vectors[::2], vectors[1::2])]
        group //= 2
    (sums,) = vectors
    lanes = sums.type.count
    width = group
    while width > 1:
        width //= 2
        sums = builder.fadd(sums, _pick(builder, sums, sums, [k ^ width for k in range(lanes)]))
    chosen = _pick(builder, sums, sums, [group * k for k in range(many)])
    address = address_of(context, builder, signature.args[0], args[0], args[1])
    align = signature.args[2].dtype.bitwidth // 8
    builder.store(chosen, builder.bitcast(address, chosen.type.as_pointer()), align=align)
    return context.get_dummy_value()


@intrinsic
def store_totals(typingctx: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Write the sums over the lanes of a, b, c, d to four places from flat position `index`."""
    return types.void(array, types.intp, a, b, c, d), _store_totals


@intrinsic
def store_eight_totals(
    typingctx: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> Any:
    """Write the sums over the lanes of eight vectors to eight places from flat position `index`."""
    return types.void(array, types.intp, a, b, c, d, e, f, g, h), _store_totals
