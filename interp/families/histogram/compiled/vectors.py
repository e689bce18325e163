"""Vectors of 64 bytes for compiled kernels (16 numbers in float32, 8 in float64), and tiles of several vectors.

numba vectorizes a plain loop only if it can prove that no two arrays overlap and that the loop is long. The kernels'
loops are short (a readout has 11 classes) and run over many arrays at once. So vectors are explicit: a numba type
backed by LLVM vectors, with the few operations that the kernels need. LLVM splits vectors wider than the machine's
registers.

Indices are flat positions in a C-contiguous array of any rank. Nothing is bounds-checked: the kernels' own layouts
(`layout.py`) pad every row to whole vectors.
"""

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel, register_default

VECTOR_BYTES = 64

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
    """A tile of rows x columns vectors, each of `lanes` numbers of a numba float type; one vector by default.

    Operations work vector by vector and broadcast rows and columns as numpy does. So fma(a, b, c) of a column of rows
    and a row of columns adds their outer product to the tile c.
    """

    def __init__(self, dtype: types.Float, rows: int = 1, columns: int = 1) -> None:
        self.dtype, self.rows, self.columns = dtype, rows, columns
        self.lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {rows}, {columns})")

    @property
    def one(self) -> ir.VectorType:
        """LLVM's type of one vector."""
        return ir.VectorType(ir.FloatType() if self.dtype.bitwidth == 32 else ir.DoubleType(), self.lanes)

    @property
    def all(self) -> Any:
        """LLVM's type of the tile."""
        n = self.rows * self.columns
        return self.one if n == 1 else ir.ArrayType(self.one, n)

    def parts(self, builder: Any, value: Any) -> list[Any]:
        """Return the vectors of a tile, row by row."""
        n = self.rows * self.columns
        return [value] if n == 1 else [builder.extract_value(value, i) for i in range(n)]

    def packed(self, builder: Any, parts: Sequence[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        value = ir.Constant(self.all, ir.Undefined)
        for i, part in enumerate(parts):
            value = builder.insert_value(value, part, i)
        return value


@register_default(Vector)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager: Any, tile: Vector) -> None:
        super().__init__(manager, tile, tile.all)


def constant(tile: Vector, value: float) -> ir.Constant:
    return ir.Constant(tile.one, [value] * tile.lanes)


def call(builder: Any, tile: Vector, name: str, *args: Any) -> Any:
    """Call an LLVM intrinsic that takes and returns vectors."""
    kind = ir.FunctionType(tile.one, [tile.one] * len(args))
    full = f"llvm.{name}.v{tile.lanes}f{tile.dtype.bitwidth}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), args)


def pick(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """Pick lanes by number from a followed by b."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes)))


# ---------------------------------------------------------------- making operations


@dataclass(frozen=True)
class Code:
    """What an operation writes its code with. kinds: the types of its arguments; result: its own type."""

    context: Any
    builder: Any
    kinds: Sequence[Any]
    result: Any

    def splat(self, number: Any, tile: Vector) -> Any:
        lane = self.builder.insert_element(ir.Constant(tile.one, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        return pick(self.builder, lane, lane, [0] * tile.lanes)

    def address(self, array: Any, index: Any, argument: int = 0) -> Any:
        """Return the address of a number of an array, which is the operation's first argument by default."""
        data = self.context.make_array(self.kinds[argument])(self.context, self.builder, array).data
        return self.builder.gep(data, [index])

    def rows(self, n: int, array: Any, index: Any, step: Any, last: Any, listed: Any = None, first: Any = None) -> Any:
        """Return the address of each row of a tile. Row r starts at index + min(r, last) step.

        listed: an argument's number and its array; instead of min(r, last), it has the row's number there from `first`.
        """
        addresses, builder = [], self.builder
        for r in range(n):
            row = ir.Constant(last.type, r)
            row = builder.select(builder.icmp_signed("<", row, last), row, last)
            if listed is not None:
                row = builder.load(self.address(listed[1], builder.add(first, row), listed[0]))
            addresses.append(self.address(array, builder.add(index, builder.mul(row, step))))
        return addresses

    def _vectors(self, tile: Vector, rows: Sequence[Any]) -> list[Any]:
        """Return pointers to the vectors of these rows."""
        starts = [ir.Constant(ir.IntType(32), c * tile.lanes) for c in range(tile.columns)]
        places = [self.builder.gep(row, [start]) for row in rows for start in starts]
        return [self.builder.bitcast(place, tile.one.as_pointer()) for place in places]

    def read(self, tile: Vector, rows: Sequence[Any]) -> Any:
        align = tile.dtype.bitwidth // 8
        return tile.packed(self.builder, [self.builder.load(at, align=align) for at in self._vectors(tile, rows)])

    def write(self, tile: Vector, rows: Sequence[Any], value: Any) -> None:
        for part, at in zip(tile.parts(self.builder, value), self._vectors(tile, rows)):
            self.builder.store(part, at, align=tile.dtype.bitwidth // 8)


def operation(typed: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make an operation of compiled code. typed: the numba signature by the types of the arguments.

    The decorated function writes its code: it gets a Code and LLVM's values of the arguments. Integers that are
    constants of the compiled code have literal types.
    """

    def decorate(write: Callable[..., Any]) -> Any:
        def definition(typingctx: Any, *kinds: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                value = write(Code(context, builder, signature.args, signature.return_type), *args)
                return context.get_dummy_value() if value is None else value

            return typed(*kinds), codegen

        declared = inspect.signature(write)
        first = inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        definition.__name__, definition.__doc__ = write.__name__, write.__doc__
        definition.__signature__ = declared.replace(parameters=[first, *[*declared.parameters.values()][1:]])  # type: ignore
        return extending.intrinsic(prefer_literal=True)(definition)

    return decorate


def vector_by_vector(build: Callable[..., Any]) -> Any:
    """Make an operation on tiles from build(builder, tile, *vectors), which writes the code for one vector of each."""

    def typed(*tiles: Vector) -> Any:
        rows, columns = (max(getattr(tile, axis) for tile in tiles) for axis in ("rows", "columns"))
        return Vector(tiles[0].dtype, rows, columns)(*tiles)

    def write(code: Code, *values: Any) -> Any:
        tile, vectors = code.result, [(k, k.parts(code.builder, value)) for k, value in zip(code.kinds, values)]
        return tile.packed(code.builder, [
            build(code.builder, tile, *[parts[r % k.rows * k.columns + c % k.columns] for k, parts in vectors])
            for r in range(tile.rows) for c in range(tile.columns)
        ])  # fmt: skip

    signature = inspect.signature(build)
    write.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore
    return operation(typed)(write)


def reduction(build: Callable[[Any, Any, Any], Any]) -> Any:
    """Make an operation that combines the lanes of a tile pairwise; it has a power of two of vectors."""

    @operation(lambda tile: tile.dtype(tile))
    def reduced(code: Code, tile: Any) -> Any:
        values, width = code.kinds[0].parts(code.builder, tile), code.kinds[0].lanes
        while len(values) > 1:
            values = [build(code.builder, x, y) for x, y in zip(values[::2], values[1::2])]
        (value,) = values
        while width > 1:
            width //= 2
            halves = (pick(code.builder, value, value, range(at, at + width)) for at in (0, width))
            value = build(code.builder, *halves)
        return code.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return reduced


# ---------------------------------------------------------------- numbers and vectors


@operation(lambda array: types.intp(array))
def lanes_of(code: Code, array: Any) -> Any:
    """Return how many numbers of an array's dtype fill one vector (a compile-time constant)."""
    return code.context.get_constant(types.intp, Vector(code.kinds[0].dtype).lanes)


@operation(lambda array, index: array.dtype(array, types.intp))
def get(code: Code, array: Any, index: Any) -> Any:
    """Read one number at flat position `index`, without wrapping negative indices."""
    return code.builder.load(code.address(array, index))


@operation(lambda array, index, value: types.void(array, types.intp, array.dtype))
def put(code: Code, array: Any, index: Any, value: Any) -> None:
    """Write one number at flat position `index`."""
    code.builder.store(value, code.address(array, index))


@operation(lambda array, index: Vector(array.dtype)(array, types.intp))
def load(code: Code, array: Any, index: Any) -> Any:
    """Read the vector that starts at flat position `index`."""
    return code.read(code.result, [code.address(array, index)])


@operation(lambda array, index, value: types.void(array, types.intp, value))
def store(code: Code, array: Any, index: Any, value: Any) -> None:
    """Write a vector, or a tile of one row, from flat position `index` on."""
    code.write(code.kinds[2], [code.address(array, index)], value)


@operation(lambda array, index: Vector(array.dtype)(array, types.intp))
def spread(code: Code, array: Any, index: Any) -> Any:
    """Read one number at flat position `index` into every lane."""
    return code.splat(code.builder.load(code.address(array, index)), code.result)


@operation(lambda value: Vector(value)(value))
def fill(code: Code, value: Any) -> Any:
    """Copy a scalar to every lane."""
    return code.splat(value, code.result)


@operation(lambda value, lane: Vector(value)(value, types.intp))
def at_lane(code: Code, value: Any, lane: Any) -> Any:
    """Put a scalar in one lane and zeros in the others; only zeros if the lane does not exist."""
    tile, builder, number = code.result, code.builder, ir.IntType(32)
    index = ir.VectorType(number, tile.lanes)
    wanted = builder.insert_element(
        ir.Constant(index, ir.Undefined), builder.trunc(lane, number), ir.Constant(number, 0)
    )
    wanted = pick(builder, wanted, wanted, [0] * tile.lanes)
    here = builder.icmp_signed("==", ir.Constant(index, list(range(tile.lanes))), wanted)
    return builder.select(here, code.splat(value, tile), constant(tile, 0.0))


fma = vector_by_vector(lambda builder, tile, a, b, c: call(builder, tile, "fma", a, b, c))  # a b + c, rounded once
root = vector_by_vector(lambda builder, tile, a: call(builder, tile, "sqrt", a))
largest = vector_by_vector(lambda builder, tile, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
smallest = vector_by_vector(lambda builder, tile, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b))
where_positive = vector_by_vector(
    lambda builder, tile, a, b: builder.select(
        builder.fcmp_ordered(">", a, constant(tile, 0.0)), b, constant(tile, 0.0)
    )
)
total = reduction(lambda builder, a, b: builder.fadd(a, b))
lowest = reduction(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b))


def _overload(symbol: Any, build: Callable[[Any, Any, Any, Any], Any]) -> None:
    """Let compiled code write vector arithmetic with the usual operators."""
    vectorized = vector_by_vector(build)

    def typed(a: Any, b: Any) -> Any:
        def implementation(a: Any, b: Any) -> Any:
            return vectorized(a, b)

        return implementation if isinstance(a, Vector) and isinstance(b, Vector) else None

    extending.overload(symbol)(typed)


_overload(operator.add, lambda builder, tile, a, b: builder.fadd(a, b))
_overload(operator.sub, lambda builder, tile, a, b: builder.fsub(a, b))
_overload(operator.mul, lambda builder, tile, a, b: builder.fmul(a, b))
_overload(operator.truediv, lambda builder, tile, a, b: builder.fdiv(a, b))


# ---------------------------------------------------------------- tiles; `rows` and `columns` are constants


def _tile(dtype: Any, rows: Any, columns: Any) -> Vector:
    return Vector(dtype, rows.literal_value, columns.literal_value)


@operation(lambda value, rows, columns: _tile(value.dtype, rows, columns)(value, rows, columns))
def tiled(code: Code, value: Any, rows: Any, columns: Any) -> Any:
    """Repeat a vector or a tile of one row."""
    tile, kind = code.result, code.kinds[0]
    parts = kind.parts(code.builder, value)
    return tile.packed(code.builder, parts * (tile.rows * tile.columns // len(parts)))


@operation(
    lambda array, index, rows, columns, step, last: _tile(array.dtype, rows, columns)(
        array, types.intp, rows, columns, types.intp, types.intp
    )
)
def load_tile(code: Code, array: Any, index: Any, rows: Any, columns: Any, step: Any, last: Any) -> Any:
    """Read a tile. Row r starts at flat position index + min(r, last) step; columns are consecutive vectors."""
    return code.read(code.result, code.rows(code.result.rows, array, index, step, last))


@operation(lambda array, index, step, last, tile: types.void(array, *[types.intp] * 3, tile))
def store_tile(code: Code, array: Any, index: Any, step: Any, last: Any, tile: Any) -> None:
    """Write a tile. Rows after the last overwrite it, so they must be equal to it."""
    kind = code.kinds[4]
    code.write(kind, code.rows(kind.rows, array, index, step, last), tile)


@operation(
    lambda array, index, rows, step, last: Vector(array.dtype, rows.literal_value)(
        array, types.intp, rows, types.intp, types.intp
    )
)
def spread_tile(code: Code, array: Any, index: Any, rows: Any, step: Any, last: Any) -> Any:
    """Read one number per row into every lane of the row: a tile of one column."""
    every = code.rows(code.result.rows, array, index, step, last)
    return code.result.packed(code.builder, [code.splat(code.builder.load(at), code.result) for at in every])


@operation(
    lambda array, index, rows, columns, listed, first, step, last: _tile(array.dtype, rows, columns)(
        array, types.intp, rows, columns, listed, types.intp, types.intp, types.intp
    )
)
def gather_tile(
    code: Code, array: Any, index: Any, rows: Any, columns: Any, listed: Any, first: Any, step: Any, last: Any
) -> Any:
    """Read a tile whose row r is at index + n step, where n is the number in `listed` at first + min(r, last)."""
    every = code.rows(code.result.rows, array, index, step, last, (4, listed), first)
    return code.read(code.result, every)


@operation(lambda array, index, listed, first, step, last, tile: types.void(
    array, types.intp, listed, types.intp, types.intp, types.intp, tile))  # fmt: skip
def scatter_tile(
    code: Code, array: Any, index: Any, listed: Any, first: Any, step: Any, last: Any, tile: Any
) -> None:  # fmt: skip
    """Write the rows that gather_tile reads."""
    kind = code.kinds[6]
    code.write(kind, code.rows(kind.rows, array, index, step, last, (2, listed), first), tile)
