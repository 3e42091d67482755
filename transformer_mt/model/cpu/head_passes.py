"""Small passes over the matrices of one head, from which the passes of `attention_kernels.py` are put together.

Matrices are flat arrays. Zeros fill up their rows to a multiple of `QUERIES` or `WIDTH`. The passes on weights take
`QUERIES` rows of them at once. `attention_kernels.py` holds a hash of this file too: see `lanes.py`.
"""

from typing import Any

import numpy as np
from numba import njit

from transformer_mt.model.cpu.lanes import WIDTH, each, each_of, load, multiply, multiply_add, store, turn

QUERIES = 4  # rows of queries taken at once: each vector of keys or values that is read serves all of them
ZERO = np.float32(0)
ONE = np.float32(1)
_OPTIONS: Any = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
part = njit(error_model="numpy", **_OPTIONS)


@part
def fetch(x, start, stride, num_rows, size, factor, rows):
    """Rows of x times a factor, then zeros, to the end of `rows`."""
    times = each(factor)
    for i in range(num_rows):
        for d in range(0, size, WIDTH):
            store(rows, i * size + d, multiply(load(x, start + i * stride + d), times))
    for i in range(num_rows * size, len(rows), WIDTH):
        store(rows, i, each(ZERO))


@part
def deliver(rows, num_rows, size, factor, x, start, stride):
    """The inverse of `fetch`."""
    for i in range(num_rows):
        for d in range(0, size, WIDTH):
            store(x, start + i * stride + d, multiply(load(rows, i * size + d), each(factor)))


@part
def transpose(rows, size, columns):
    """Write the columns of rows of this size."""
    whole = len(rows) // size
    for i in range(0, whole, WIDTH):
        for d in range(0, size, WIDTH):
            turn(rows, i * size + d, size, columns, d * whole + i, whole)


@part
def products(a, first, size, columns, out):
    """The products of the rows of a, from `first` on, with all columns."""
    whole = len(columns) // size
    for j in range(0, whole, WIDTH):
        sum0 = sum1 = sum2 = sum3 = each(ZERO)
        for d in range(size):
            column, i = load(columns, d * whole + j), first * size + d
            sum0 = multiply_add(each_of(a, i), column, sum0)
            sum1 = multiply_add(each_of(a, i + size), column, sum1)
            sum2 = multiply_add(each_of(a, i + 2 * size), column, sum2)
            sum3 = multiply_add(each_of(a, i + 3 * size), column, sum3)
        store(out, j, sum0)
        store(out, whole + j, sum1)
        store(out, 2 * whole + j, sum2)
        store(out, 3 * whole + j, sum3)


@part
def mixtures(weights, num_rows, rows, size, out):
    """Weights times rows."""
    whole = len(weights) // QUERIES
    for d in range(0, size, WIDTH):
        sum0 = sum1 = sum2 = sum3 = each(ZERO)
        for j in range(num_rows):
            row = load(rows, j * size + d)
            sum0 = multiply_add(each_of(weights, j), row, sum0)
            sum1 = multiply_add(each_of(weights, whole + j), row, sum1)
            sum2 = multiply_add(each_of(weights, 2 * whole + j), row, sum2)
            sum3 = multiply_add(each_of(weights, 3 * whole + j), row, sum3)
        store(out, d, sum0)
        store(out, size + d, sum1)
        store(out, 2 * size + d, sum2)
        store(out, 3 * size + d, sum3)


@part
def add_shares(weights, num_rows, a, first, size, rows):
    """Add to each row the rows of a, from `first` on, times their weights."""
    whole = len(weights) // QUERIES
    for d in range(0, size, WIDTH):
        i = first * size + d
        a0, a1, a2, a3 = load(a, i), load(a, i + size), load(a, i + 2 * size), load(a, i + 3 * size)
        for j in range(num_rows):
            row = multiply_add(each_of(weights, j), a0, load(rows, j * size + d))
            row = multiply_add(each_of(weights, whole + j), a1, row)
            row = multiply_add(each_of(weights, 2 * whole + j), a2, row)
            store(rows, j * size + d, multiply_add(each_of(weights, 3 * whole + j), a3, row))


@part
def up_to(number, multiple):
    """The next multiple."""
    return -(-number // multiple) * multiple


@part
def start_of(strides, which, row, h):
    """Where the head h of a row begins; `which` is a row of strides."""
    return row * strides[which, 0] + h * strides[which, 1]
