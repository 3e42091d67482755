"""Products of a few rows with one panel of a weight, as functions of numba that keep all sums in registers.

A panel is `COLUMNS` neighbouring columns of a weight, which lie together: first what the first number of each row
meets, then what the second one meets. Each vector that is read serves `MOST_ROWS` rows. Both numbers are chosen for
this processor's registers, and numba compiles passes anew for another processor.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target

from transformer_mt.decoding.fast_layers.panels.layout import AT_ONCE
from transformer_mt.model.cpu.lanes import FLOATS, INTS, WIDTH, call, lane_function, place_in, spread

# Those that numba compiles for, which may have been told another processor, and by which it finds what it compiled
# before: a panel must be the same for all that finds the same.
_target: Any = cpu_target.target_context
_features = set(_target.codegen().magic_tuple()[2].split(","))
_VECTORS, MOST_ROWS = (2, 12) if "+avx512f" in _features else (1, 6)
COLUMNS = _VECTORS * WIDTH
_HALF = WIDTH // 2
_DOT = "llvm.x86.avx512.vpdpbusd."  # with the bits of a vector; the shorter ones are also those of AVX-VNNI
HAS_INT8 = not _features.isdisjoint({"+avx512vnni", "+avxvnni"})

_Vectors = list[list[Any]]  # of each row, for each vector of the panel


def _dot(builder: Any, sums: Any, row: Any, column: Any) -> Any:
    """Add to each sum the products of the four bytes of a row and of a column."""
    if "+avx512vnni" in _features:
        return call(builder, f"{_DOT}512", INTS, sums, row, column)
    halves = []
    for start in (0, _HALF):
        at = ir.Constant(ir.VectorType(ir.IntType(32), _HALF), list(range(start, start + _HALF)))
        parts = [builder.shuffle_vector(x, x, at) for x in (sums, row, column)]
        halves.append(call(builder, f"{_DOT}256", parts[0].type, *parts))
    return builder.shuffle_vector(*halves, ir.Constant(INTS, list(range(WIDTH))))


def _multiply_add(builder: Any, sums: Any, row: Any, column: Any) -> Any:
    return call(builder, f"llvm.fmuladd.v{WIDTH}f32", FLOATS, row, column, sums)


class _Code:
    """What writes one product: pointers to arrays, and a loop over the panel."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder = context, builder
        self.kinds, self.arguments = signature.args, arguments

    def pointer(self, array: int, at: Any, pointee: Any) -> Any:
        """To a place in the argument of this number."""
        return place_in(self.context, self.builder, self.kinds[array], (self.arguments[array], at), pointee)

    def vectors(self, pointer: Any, vector: Any) -> list[Any]:
        """As many as a panel has, from here on."""
        first = self.builder.bitcast(pointer, vector.as_pointer())
        return [self.builder.load(self.builder.gep(first, [_index(i)]), align=4) for i in range(_VECTORS)]

    def rows_from(self, at: Any, stride: Any, num_rows: int) -> list[Any]:
        """The places of rows that are a stride apart."""
        return [self.builder.add(at, self.builder.mul(stride, _index(row))) for row in range(num_rows)]

    def sums(
        self, rows: list[Any], panel: Any, length: Any, start: list[Any], operation: Callable[..., Any]
    ) -> _Vectors:
        """The products of rows with a panel, given as pointers, added to the vectors of `start`."""
        builder, vector = self.builder, start[0].type
        before = builder.block
        loop, behind = builder.append_basic_block("panel"), builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(length.type)
        k.add_incoming(_index(0), before)
        old = [[builder.phi(vector) for _ in start] for _ in rows]
        columns = self.vectors(builder.gep(panel, [builder.mul(k, _index(COLUMNS))]), vector)
        factors = [spread(builder, vector, builder.load(builder.gep(row, [k]), align=1)) for row in rows]
        new = [
            [operation(builder, total, factor, column) for total, column in zip(totals, columns, strict=True)]
            for totals, factor in zip(old, factors, strict=True)
        ]
        following = builder.add(k, _index(1))
        k.add_incoming(following, loop)
        for of_row, then in zip(old, new, strict=True):
            for phi, first, later in zip(of_row, start, then, strict=True):
                phi.add_incoming(first, before)
                phi.add_incoming(later, loop)
        builder.cbranch(builder.icmp_signed("<", following, length), loop, behind)
        builder.position_at_end(behind)
        return new

    def write(self, array: int, at: list[Any], results: _Vectors) -> Any:
        """Store the vectors of each row from its place on."""
        for place, row in zip(at, results, strict=True):
            first = self.builder.bitcast(self.pointer(array, place, ir.FloatType()), FLOATS.as_pointer())
            for i, result in enumerate(row):
                self.builder.store(result, self.builder.gep(first, [_index(i)]), align=4)
        return self.context.get_dummy_value()


def _index(number: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), number)


def float_product(num_rows: int) -> Any:
    """A function for so many rows: out[row] = x[row] @ panel + bias, all float32 in flat arrays."""

    @lane_function
    def product(typing_context, x, at, length, numbers, panel_at, bias_at, out, out_at, out_stride):
        def code(*given):
            of = _Code(*given)
            _, at, length, _, panel_at, bias_at, _, out_at, out_stride = of.arguments
            rows = [of.pointer(0, place, ir.FloatType()) for place in of.rows_from(at, length, num_rows)]
            start = of.vectors(of.pointer(3, bias_at, ir.FloatType()), FLOATS)
            panel = of.pointer(3, panel_at, ir.FloatType())
            results = of.sums(rows, panel, length, start, _multiply_add)
            return of.write(6, of.rows_from(out_at, out_stride, num_rows), results)

        i = types.intp
        return types.void(x, i, i, numbers, i, i, out, i, i), code

    return product


def int8_product(num_rows: int) -> Any:
    """A function for so many rows: out[row] = (x[row] @ panel + zero) * scale * step[row] + bias.

    x are bytes, `ZERO_POINT` above the integers; length counts them in fours. What takes it away again, `zero`, lies
    behind the panel.
    """

    @lane_function
    def product(
        typing_context, x, at, length, steps, first, integers, panel_at, numbers, scale_at, bias_at, out, out_at, stride
    ):
        def code(*given):
            of = _Code(*given)
            builder = of.builder
            _, at, length, _, first, _, panel_at, _, scale_at, bias_at, _, out_at, stride = of.arguments
            bytes_apart = builder.mul(length, _index(AT_ONCE))
            rows = [of.pointer(0, place, ir.IntType(32)) for place in of.rows_from(at, bytes_apart, num_rows)]
            panel = of.pointer(5, panel_at, ir.IntType(32))
            start = of.vectors(builder.gep(panel, [builder.mul(length, _index(COLUMNS))]), INTS)
            sums = of.sums(rows, panel, length, start, _dot)
            scales, biases = (of.vectors(of.pointer(7, place, ir.FloatType()), FLOATS) for place in (scale_at, bias_at))
            results = []
            for number, of_row in enumerate(sums):
                place = of.pointer(3, builder.add(first, _index(number)), ir.FloatType())
                step = spread(builder, FLOATS, builder.load(place))
                scaled = [builder.fmul(builder.sitofp(x, FLOATS), s) for x, s in zip(of_row, scales, strict=True)]
                results.append([_multiply_add(builder, b, step, x) for x, b in zip(scaled, biases, strict=True)])
            return of.write(10, of.rows_from(out_at, stride, num_rows), results)

        i = types.intp
        return types.void(x, i, i, steps, i, integers, i, numbers, i, i, out, i, i), code

    return product
