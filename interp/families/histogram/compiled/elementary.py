"""Operations on vectors that consist of many instructions, without library calls, so equal on every machine.

exp and log by range reduction and a polynomial; the transpose of a square block; sums of several vectors at once.
"""

import math
from typing import Any

from llvmlite import ir
from numba import types

from interp.families.histogram.compiled.vectors import Code, Vector, call, constant, operation, pick, vector_by_vector

# exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2. A Taylor sum of this degree has an error of one or
# two units in the last place. ln 2 is split in two so that n ln2_high is exact. Below `smallest` the result is 0.
# log(x) = n ln 2 + 2 artanh(s) with x = 2^n f, 1/sqrt(2) < f < sqrt(2), s = (f - 1) / (f + 1): `terms` odd powers of s.
_TABLE: dict[int, Any] = {
    32: {
        "ln2_high": 0.693359375, "ln2_low": -2.12194440e-4, "degree": 7, "smallest": -87.33, "largest": 88.0,
        "bias": 127, "mantissa": 23, "terms": 5,
    },
    64: {
        "ln2_high": 6.93147180369123816490e-01, "ln2_low": 1.90821492927058770002e-10, "degree": 13,
        "smallest": -708.0, "largest": 709.0, "bias": 1023, "mantissa": 52, "terms": 11,
    },
}  # fmt: skip


@vector_by_vector
def exp(builder: Any, tile: Vector, x: Any) -> Any:
    """Return e^x in every lane: 0 in place of subnormal numbers, e^88 (float32) or e^709 (float64) at overflow."""
    table = _TABLE[tile.dtype.bitwidth]
    low, high = constant(tile, table["smallest"]), constant(tile, table["largest"])
    vanishes = builder.fcmp_ordered("<", x, low)
    x = builder.select(vanishes, low, x)
    x = builder.select(builder.fcmp_ordered(">", x, high), high, x)
    n = call(builder, tile, "rint", builder.fmul(x, constant(tile, 1.0 / math.log(2.0))))
    r = call(builder, tile, "fma", n, constant(tile, -table["ln2_high"]), x)
    r = call(builder, tile, "fma", n, constant(tile, -table["ln2_low"]), r)
    value = constant(tile, 1.0 / math.factorial(table["degree"]))
    for k in range(table["degree"] - 1, -1, -1):
        value = call(builder, tile, "fma", value, r, constant(tile, 1.0 / math.factorial(k)))
    integer = ir.VectorType(ir.IntType(tile.dtype.bitwidth), tile.lanes)
    exponent = builder.fptosi(builder.fadd(n, constant(tile, table["bias"])), integer)
    bits = builder.shl(exponent, ir.Constant(integer, [table["mantissa"]] * tile.lanes))
    return builder.select(vanishes, constant(tile, 0.0), builder.fmul(value, builder.bitcast(bits, tile.one)))


@vector_by_vector
def log(builder: Any, tile: Vector, x: Any) -> Any:
    """Return the natural logarithm in every lane, for positive normal numbers."""
    table = _TABLE[tile.dtype.bitwidth]
    integer = ir.VectorType(ir.IntType(tile.dtype.bitwidth), tile.lanes)

    def integers(value: int) -> ir.Constant:
        return ir.Constant(integer, [value] * tile.lanes)

    # Choose the exponent so that the fraction lies around 1: subtract the bits of sqrt(1/2), rounded up.
    mantissa, bias = table["mantissa"], table["bias"]
    middle = ((bias - 1) << mantissa) + int((math.sqrt(2.0) - 1.0) * 2**mantissa)
    bits = builder.bitcast(x, integer)
    n = builder.ashr(builder.sub(bits, integers(middle)), integers(mantissa))
    f = builder.bitcast(builder.sub(bits, builder.shl(n, integers(mantissa))), tile.one)
    s = builder.fdiv(builder.fsub(f, constant(tile, 1.0)), builder.fadd(f, constant(tile, 1.0)))
    square = builder.fmul(s, s)
    value = constant(tile, 2.0 / (2 * table["terms"] - 1))
    for k in range(table["terms"] - 2, -1, -1):
        value = call(builder, tile, "fma", value, square, constant(tile, 2.0 / (2 * k + 1)))
    n = builder.sitofp(n, tile.one)
    value = call(builder, tile, "fma", n, constant(tile, table["ln2_low"]), builder.fmul(value, s))
    return call(builder, tile, "fma", n, constant(tile, table["ln2_high"]), value)


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
