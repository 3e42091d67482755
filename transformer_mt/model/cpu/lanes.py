"""Vectors of sixteen float32 as a type of numba, with the operations that the passes of attention are written in.

LLVM has such a type. By itself it turns few short loops into operations on vectors. Here every operation is one
already, and LLVM only chooses how many registers a vector takes.

numba keeps compiled passes on the disk, and compiles a pass anew when the pass's own file has changed. It would not
notice a change of this file. So each file of passes holds a hash, `PARTS`, of the files that they use, and a test
compares it.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model

WIDTH = 16

FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
INTS = ir.VectorType(ir.IntType(32), WIDTH)
_HALVES = ir.VectorType(ir.IntType(16), WIDTH)  # a bfloat16 is the upper half of a float32


class _Lanes(types.Type):
    """float32, WIDTH of them."""

    def __init__(self) -> None:
        super().__init__(name=f"float32x{WIDTH}")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, FLOATS)


def _all(vector: ir.VectorType, number: float) -> ir.Constant:
    return ir.Constant(vector, [number] * WIDTH)


def spread(builder: Any, vector: ir.VectorType, number: Any) -> Any:
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), _all(INTS, 0))


def call(builder: Any, name: str, result: ir.VectorType, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def place_in(context: Any, builder: Any, kind: Any, where: Any, pointee: Any) -> Any:
    """A pointer to the type `pointee`: `where` is an array, whose type in numba is `kind`, and a place in it."""
    array, at = where
    place = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    return builder.bitcast(place, pointee.as_pointer())


def _refuse_but(array: Any, *kinds: Any) -> None:
    """Raise TypingError for an array of another type, whose bits would be taken for numbers of these."""
    if array.dtype not in kinds:
        raise TypingError(f"{array.dtype} is not among {kinds}")


# Functions for numba's passes, each with the code that it gives to LLVM.


def lane_function(types_and_code: Callable[..., Any]) -> Any:
    """numba's `intrinsic`. Within a pass its functions are called without the first argument."""
    return intrinsic(types_and_code)


@lane_function
def load(typing_context, array, at):
    """WIDTH neighbours of a flat array of float32, or of bfloat16 in uint16."""
    _refuse_but(array, types.float32, types.uint16)

    def code(context, builder, signature, arguments):
        if array.dtype != types.uint16:
            place = place_in(context, builder, signature.args[0], arguments, FLOATS)
            return builder.load(place, align=4)
        halves = builder.load(place_in(context, builder, signature.args[0], arguments, _HALVES), align=2)
        return builder.bitcast(builder.shl(builder.zext(halves, INTS), _all(INTS, 16)), FLOATS)

    return _lanes(array, types.intp), code


@lane_function
def store(typing_context, array, at, x):
    """The inverse of `load`; to bfloat16 rounded to nearest, to even where two are equally near."""
    _refuse_but(array, types.float32, types.uint16)

    def code(context, builder, signature, arguments):
        *where, x = arguments
        if array.dtype != types.uint16:
            builder.store(x, place_in(context, builder, signature.args[0], where, FLOATS), align=4)
            return context.get_dummy_value()
        bits = builder.bitcast(x, INTS)
        odd = builder.and_(builder.lshr(bits, _all(INTS, 16)), _all(INTS, 1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, _all(INTS, 0x7FFF))), _all(INTS, 16))
        rounded = builder.select(builder.fcmp_unordered("uno", x, x), _all(INTS, 0x7FC0), rounded)
        place = place_in(context, builder, signature.args[0], where, _HALVES)
        builder.store(builder.trunc(rounded, _HALVES), place, align=2)
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes), code


@lane_function
def each(typing_context, number):
    """A number, WIDTH times."""
    return _lanes(types.float32), lambda context, builder, signature, arguments: spread(builder, FLOATS, *arguments)


@lane_function
def each_of(typing_context, array, at):
    """A number of a flat array of float32, WIDTH times."""
    _refuse_but(array, types.float32)

    def code(context, builder, signature, arguments):
        place = place_in(context, builder, signature.args[0], arguments, ir.FloatType())
        return spread(builder, FLOATS, builder.load(place))

    return _lanes(array, types.intp), code


def _of_two(operation: Callable[..., Any]) -> Any:
    @lane_function
    def function(typing_context, a, b):
        return _lanes(_lanes, _lanes), lambda context, builder, signature, arguments: operation(builder, *arguments)

    return function


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("ogt", a, b), a, b)


add, subtract, multiply = (_of_two(getattr(ir.IRBuilder, name)) for name in ("fadd", "fsub", "fmul"))
maximum = _of_two(_larger)


@lane_function
def multiply_add(typing_context, a, b, c):
    """a * b + c, rounded only once where the processor can do that."""

    def code(context, builder, signature, arguments):
        return call(builder, f"llvm.fmuladd.v{WIDTH}f32", FLOATS, *arguments)

    return _lanes(_lanes, _lanes, _lanes), code


def _of_all(operation: Callable[..., Any]) -> Any:
    """Combine the halves of a vector, then the halves of the result, until one number is left."""

    @lane_function
    def function(typing_context, x):
        def code(context, builder, signature, arguments):
            (x,) = arguments
            for width in (8, 4, 2, 1):
                halves = [
                    builder.shuffle_vector(
                        x, x, ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width)))
                    )
                    for start in (0, width)
                ]
                x = operation(builder, *halves)
            return builder.extract_element(x, ir.Constant(ir.IntType(32), 0))

        return types.float32(_lanes), code

    return function


sum_of, maximum_of = _of_all(ir.IRBuilder.fadd), _of_all(_larger)


@lane_function
def exp(typing_context, x):
    """e^x = 2^n e^f up to x = 88, where e^f is the first terms of its series; 0 below 1e-30, nan for nan."""

    def code(context, builder, signature, arguments):
        power = builder.fmul(arguments[0], _all(FLOATS, 1.4426950408889634))
        # Products of still smaller numbers may be denormal, which takes a processor 30 times as long.
        is_none = builder.fcmp_ordered("olt", power, _all(FLOATS, -100.0))
        power = builder.select(is_none, _all(FLOATS, 0.0), power)
        n = call(builder, f"llvm.rint.v{WIDTH}f32", FLOATS, power)
        f = builder.fmul(builder.fsub(power, n), _all(FLOATS, 0.6931471805599453))
        series = _all(FLOATS, 1 / 5040)
        for term in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            series = call(builder, f"llvm.fmuladd.v{WIDTH}f32", FLOATS, series, f, _all(FLOATS, term))
        # The last bits of this sum are n. LLVM converts to integers one by one where it must not fail for nan.
        exponent = builder.bitcast(builder.fadd(n, _all(FLOATS, 1.5 * 2**23)), INTS)
        exponent = builder.shl(builder.add(exponent, _all(INTS, 127)), _all(INTS, 23))
        result = builder.fmul(series, builder.bitcast(exponent, FLOATS))
        return builder.select(is_none, _all(FLOATS, 0.0), result)

    return _lanes(_lanes), code


@lane_function
def factors(typing_context, place, first_key, second_key, dropped, scale):
    """The factors of dropout for WIDTH places from `place` on: those of `kernels.CompiledDraw`."""

    def code(context, builder, signature, arguments):
        def mixed(x, by):
            return builder.xor(x, builder.lshr(x, _all(INTS, by)))

        place, first_key, second_key, dropped = (spread(builder, INTS, number) for number in arguments[:4])
        x = builder.xor(builder.add(place, ir.Constant(INTS, list(range(WIDTH)))), first_key)
        x = builder.xor(builder.mul(mixed(x, 16), _all(INTS, 0x7FEB352D)), second_key)
        x = mixed(builder.mul(mixed(x, 15), _all(INTS, 0x846CA68B)), 16)
        kept = builder.icmp_unsigned(">=", x, dropped)
        return builder.select(kept, spread(builder, FLOATS, arguments[4]), _all(FLOATS, 0.0))

    return _lanes(types.uint32, types.uint32, types.uint32, types.uint32, types.float32), code


@lane_function
def turn(typing_context, rows, at, stride, columns, column_at, column_stride):
    """Transpose WIDTH x WIDTH numbers: rows `stride` apart become columns `column_stride` apart."""
    _refuse_but(rows, types.float32)
    _refuse_but(columns, types.float32)

    def code(context, builder, signature, arguments):
        def places(kind, array, at, stride):
            steps = [ir.Constant(at.type, number) for number in range(WIDTH)]
            return [
                place_in(context, builder, kind, (array, builder.add(at, builder.mul(stride, n))), FLOATS)
                for n in steps
            ]

        rows = [builder.load(place, align=4) for place in places(signature.args[0], *arguments[:3])]
        apart = 1
        while apart < WIDTH:  # in squares of twice this size, swap the upper right and the lower left quarter
            lanes = range(WIDTH)
            first = ir.Constant(INTS, [i if not i & apart else WIDTH + i - apart for i in lanes])
            second = ir.Constant(INTS, [i + apart if not i & apart else WIDTH + i for i in lanes])
            for i in lanes:
                if not i & apart:
                    pair = rows[i], rows[i + apart]
                    rows[i] = builder.shuffle_vector(*pair, first)
                    rows[i + apart] = builder.shuffle_vector(*pair, second)
            apart *= 2
        for row, place in zip(rows, places(signature.args[3], *arguments[3:]), strict=True):
            builder.store(row, place, align=4)
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp, columns, types.intp, types.intp), code
