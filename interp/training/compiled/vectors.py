"""Vectors of 64 bytes for compiled kernels: 16 numbers in float32, 8 in float64.

numba vectorizes a plain loop only if it can prove that no two arrays overlap and that the loop is long. The kernels'
loops are short (a readout has 11 classes) and run over many arrays at once. So vectors are explicit: a numba type
backed by an LLVM vector, with the few operations that the kernels need. LLVM splits vectors wider than the machine's
registers.

Indices are flat positions in a C-contiguous array of any rank. Nothing is bounds-checked: the kernels' own layouts
(`layout.py`) pad every row to whole vectors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel, register_default

VECTOR_BYTES = 64

intrinsic: Any = extending.intrinsic  # its result is called by compiled code only, with different arguments

# Compile a function that only compiled code calls: without entry points for Python and C, which take longer to compile
# than a function of many arrays itself, and without counting references, since the caller owns the arrays.
_INNER: Any = {
    "nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False,
}  # fmt: skip
inner: Any = njit(**_INNER)


def lanes(dtype: Any) -> int:
    """Return how many numbers of `dtype` fill one vector (16 for float32, 8 for float64)."""
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
        super().__init__(manager, vector, llvm_type(vector))


def llvm_type(vector: Vector) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if vector.dtype.bitwidth == 32 else ir.DoubleType(), vector.lanes)


def _suffix(vector: Vector) -> str:
    return f"v{vector.lanes}f{vector.dtype.bitwidth}"


def splat(builder: Any, scalar: Any, vector: Vector) -> Any:
    one = builder.insert_element(ir.Constant(llvm_type(vector), ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.lanes), [0] * vector.lanes)
    return builder.shuffle_vector(one, one, mask)


def constant(vector: Vector, value: float) -> ir.Constant:
    return ir.Constant(llvm_type(vector), [value] * vector.lanes)


def call(builder: Any, vector: Vector, name: str, *args: Any) -> Any:
    """Declare an LLVM intrinsic that takes and returns this vector."""
    kind = llvm_type(vector)
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), f"llvm.{name}.{_suffix(vector)}"
    )
    return builder.call(function, args)


def address_of(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def as_vector_pointer(builder: Any, address: Any, vector: Vector) -> Any:
    return builder.bitcast(address, llvm_type(vector).as_pointer())


@intrinsic
def lanes_of(typingctx: Any, array: Any) -> Any:
    """Return how many numbers of an array's dtype fill one vector (a compile-time constant)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, Vector(array.dtype).lanes)

    return types.intp(array), codegen


@intrinsic
def get(typingctx: Any, array: Any, index: Any) -> Any:
    """Read one number at flat position `index`, without wrapping negative indices."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(address_of(context, builder, signature.args[0], args[0], args[1]))

    return array.dtype(array, types.intp), codegen


@intrinsic
def put(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Write one number at flat position `index`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], address_of(context, builder, signature.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """Read the vector that starts at flat position `index`."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        return builder.load(as_vector_pointer(builder, address, vector), align=vector.dtype.bitwidth // 8)

    return vector(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Write the vector `value` from flat position `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], as_vector_pointer(builder, address, value), align=value.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def spread(typingctx: Any, array: Any, index: Any) -> Any:
    """Read one number at flat position `index` into every lane."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        return splat(builder, builder.load(address), vector)

    return vector(array, types.intp), codegen


@intrinsic
def fill(typingctx: Any, value: Any) -> Any:
    """Copy a scalar to every lane."""
    vector = Vector(value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return splat(builder, args[0], vector)

    return vector(value), codegen


@intrinsic
def at_lane(typingctx: Any, value: Any, lane: Any) -> Any:
    """Put a scalar in one lane and zeros in the others; only zeros if the lane does not exist."""
    vector = Vector(value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        index = ir.VectorType(ir.IntType(32), vector.lanes)
        wanted = builder.insert_element(
            ir.Constant(index, ir.Undefined), builder.trunc(args[1], ir.IntType(32)), ir.Constant(ir.IntType(32), 0)
        )
        wanted = builder.shuffle_vector(wanted, wanted, ir.Constant(index, [0] * vector.lanes))
        here = builder.icmp_signed("==", ir.Constant(index, list(range(vector.lanes))), wanted)
        return builder.select(here, splat(builder, args[0], vector), constant(vector, 0.0))

    return vector(value, types.intp), codegen


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call(builder, a, "fma", *args)

    return a(a, b, c), codegen


def _binary(build: Callable[[Any, Any, Any, Any], Any]) -> Any:
    @intrinsic
    def operation(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return build(builder, a, args[0], args[1])

        return a(a, b), codegen

    return operation


_add = _binary(lambda builder, kind, a, b: builder.fadd(a, b))
_sub = _binary(lambda builder, kind, a, b: builder.fsub(a, b))
_mul = _binary(lambda builder, kind, a, b: builder.fmul(a, b))
_div = _binary(lambda builder, kind, a, b: builder.fdiv(a, b))
largest = _binary(lambda builder, kind, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
where_positive = _binary(
    lambda builder, kind, a, b: builder.select(
        builder.fcmp_ordered(">", a, constant(kind, 0.0)), b, constant(kind, 0.0)
    )
)


def _unary(name: str) -> Any:
    @intrinsic
    def operation(typingctx: Any, a: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return call(builder, a, name, args[0])

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
    """Sum all lanes, pairwise."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        index, value, width = ir.IntType(32), args[0], a.lanes
        while width > 1:
            width //= 2
            kind = ir.VectorType(index, width)
            low = builder.shuffle_vector(value, value, ir.Constant(kind, list(range(width))))
            high = builder.shuffle_vector(value, value, ir.Constant(kind, list(range(width, 2 * width))))
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.Constant(index, 0))

    return a.dtype(a), codegen
