"""exp and log of vectors by range reduction and a polynomial, without library calls, so equal on every machine."""

import math
from typing import Any

from llvmlite import ir

from interp.training.compiled.vectors import Vector, call, constant, vector_by_vector

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
