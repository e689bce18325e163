"""Vectors of 64 bytes for compiled kernels: 16 numbers in float32, 8 in float64.

numba turns a plain loop into vector code only when it can prove that no two arrays overlap and that the loop is long;
the kernels' loops are short (a readout has 11 classes) and run over many arrays at once. So the vector is made
explicit: a numba type backed by an LLVM vector, with the few operations that the kernels need. LLVM splits it where
the machine's registers are narrower.

Indices are flat positions in a C-contiguous array of any rank. Nothing is bounds-checked: the kernels' own layouts
(`layout.py`) pad every row to whole vectors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel, register_default

VECTOR_BYTES = 64

intrinsic: Any = extending.intrinsic  # what it makes is called by compiled code only, with other arguments than its own

# A function that only compiled code calls: without the entry points for Python and C, which for functions of many arrays
# would take longer to compile than the function.
_INNER: Any = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner: Any = njit(**_INNER)


def lanes(dtype: Any) -> int:
    """How many numbers of `dtype` fill one vector (16 for float32, 8 for float64)."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


class Vector(types.Type):
    """One vector register of `lanes` numbers of a numba float type."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.lanes})")


@register_default(Vector)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, _llvm_type(vector))


def _llvm_type(vector: Vector) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if vector.dtype.bitwidth == 32 else ir.DoubleType(), vector.lanes)


def _suffix(vector: Vector) -> str:
    return f"v{vector.lanes}f{vector.dtype.bitwidth}"


def _splat(builder: Any, scalar: Any, vector: Vector) -> Any:
    one = builder.insert_element(ir.Constant(_llvm_type(vector), ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.lanes), [0] * vector.lanes)
    return builder.shuffle_vector(one, one, mask)


def _constant(vector: Vector, value: float) -> ir.Constant:
    return ir.Constant(_llvm_type(vector), [value] * vector.lanes)


def _call(builder: Any, vector: Vector, name: str, *args: Any) -> Any:
    """An LLVM intrinsic that takes and returns this vector."""
    kind = _llvm_type(vector)
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), f"llvm.{name}.{_suffix(vector)}"
    )
    return builder.call(function, args)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _pointer(builder: Any, address: Any, vector: Vector) -> Any:
    return builder.bitcast(address, _llvm_type(vector).as_pointer())


@intrinsic
def lanes_of(typingctx: Any, array: Any) -> Any:
    """How many numbers of an array's dtype fill one vector (a compile-time constant)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, Vector(array.dtype).lanes)

    return types.intp(array), codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """The vector that starts at flat position `index`."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        return builder.load(_pointer(builder, address, vector), align=vector.dtype.bitwidth // 8)

    return vector(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Write `value` at flat position `index` and after."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], _pointer(builder, address, value), align=value.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def spread(typingctx: Any, array: Any, index: Any) -> Any:
    """The one number at flat position `index` in every lane."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        return _splat(builder, builder.load(address), vector)

    return vector(array, types.intp), codegen


@intrinsic
def fill(typingctx: Any, value: Any) -> Any:
    """A scalar in every lane."""
    vector = Vector(value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(builder, args[0], vector)

    return vector(value), codegen


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, a, "fmuladd", *args)

    return a(a, b, c), codegen


def _binary(build: Callable[[Any, Any, Any, Any], Any]) -> Any:
    @intrinsic
    def operation(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return build(builder, a, args[0], args[1])

        return a(a, b), codegen

    return operation


_add = _binary(lambda builder, kind, a, b: builder.fadd(a, b, flags=["contract"]))
_sub = _binary(lambda builder, kind, a, b: builder.fsub(a, b, flags=["contract"]))
_mul = _binary(lambda builder, kind, a, b: builder.fmul(a, b, flags=["contract"]))
_div = _binary(lambda builder, kind, a, b: builder.fdiv(a, b))
largest = _binary(lambda builder, kind, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
where_positive = _binary(
    lambda builder, kind, a, b: builder.select(
        builder.fcmp_ordered(">", a, _constant(kind, 0.0)), b, _constant(kind, 0.0)
    )
)


def _unary(name: str) -> Any:
    @intrinsic
    def operation(typingctx: Any, a: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _call(builder, a, name, args[0])

        return a(a), codegen

    return operation


root = _unary("sqrt")


def _overload(symbol: Any, operation: Any) -> None:
    """Let compiled code write vector arithmetic with the usual operators."""

    def typed(a: Any, b: Any) -> Any:
        def implementation(a: Any, b: Any) -> Any:
            return operation(a, b)

        return implementation if isinstance(a, Vector) and a == b else None

    extending.overload(symbol)(typed)


_overload(operator.add, _add)
_overload(operator.sub, _sub)
_overload(operator.mul, _mul)
_overload(operator.truediv, _div)


@intrinsic
def total(typingctx: Any, a: Any) -> Any:
    """The sum of all lanes, added as a tree."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _fold(builder, a, args[0], lambda x, y: builder.fadd(x, y))

    return a.dtype(a), codegen


@intrinsic
def peak(typingctx: Any, a: Any) -> Any:
    """The largest lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _fold(builder, a, args[0], lambda x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))

    return a.dtype(a), codegen


def _fold(builder: Any, vector: Vector, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Halve the vector until one lane is left."""
    i32, width = ir.IntType(32), vector.lanes
    while width > 1:
        width //= 2
        kind = ir.VectorType(i32, width)
        low = builder.shuffle_vector(value, value, ir.Constant(kind, list(range(width))))
        high = builder.shuffle_vector(value, value, ir.Constant(kind, list(range(width, 2 * width))))
        value = combine(low, high)
    return builder.extract_element(value, ir.Constant(i32, 0))


# exp(x) = 2^n exp(r) with n = round(x / ln 2), |r| <= ln(2) / 2: the Taylor sum of this degree is exact to the last
# bit or two. ln 2 is split in two so that n ln2_high is exact. Below `smallest` the result would be subnormal: it is
# set to 0.
_EXP = {
    32: {
        "degree": 7,
        "high": 0.693359375,
        "low": -2.12194440e-4,
        "smallest": -87.33,
        "largest": 88.0,
        "bias": 127,
        "shift": 23,
    },
    64: {
        "degree": 13,
        "high": 6.93147180369123816490e-01,
        "low": 1.90821492927058770002e-10,
        "smallest": -708.0,
        "largest": 709.0,
        "bias": 1023,
        "shift": 52,
    },
}


@intrinsic
def exp(typingctx: Any, a: Any) -> Any:
    """e^x in every lane (relative error of a few units in the last place; 0 below the smallest normal number)."""
    table = _EXP[a.dtype.bitwidth]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def constant(value: float) -> ir.Constant:
            return _constant(a, value)

        x = args[0]
        vanishes = builder.fcmp_ordered("<", x, constant(table["smallest"]))
        x = builder.select(vanishes, constant(table["smallest"]), x)
        x = builder.select(builder.fcmp_ordered(">", x, constant(table["largest"])), constant(table["largest"]), x)
        n = _call(builder, a, "rint", builder.fmul(x, constant(1.0 / math.log(2.0))))
        r = _call(builder, a, "fmuladd", n, constant(-table["high"]), x)
        r = _call(builder, a, "fmuladd", n, constant(-table["low"]), r)
        result = constant(1.0 / math.factorial(int(table["degree"])))
        for k in range(int(table["degree"]) - 1, -1, -1):
            result = _call(builder, a, "fmuladd", result, r, constant(1.0 / math.factorial(k)))
        integer = ir.VectorType(ir.IntType(a.dtype.bitwidth), a.lanes)
        exponent = builder.fptosi(builder.fadd(n, constant(table["bias"])), integer)
        power = builder.bitcast(
            builder.shl(exponent, ir.Constant(integer, [int(table["shift"])] * a.lanes)), _llvm_type(a)
        )
        return builder.select(vanishes, constant(0.0), builder.fmul(result, power))

    return a(a), codegen
