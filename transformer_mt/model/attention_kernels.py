"""Attention in training on a CPU as numba compiles it: a head of a sentence after the other, all of it in the caches.

Nothing of the size of the weights goes to memory, nothing is moved into another layout, and going back the weights are
made again. Sums and weights are float32 whatever comes in.
"""

import functools
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.model.dropout import new_draw
from transformer_mt.model.jit import ParallelPass, uses_all_cores
from transformer_mt.model.kernels import DTYPES, CompiledDraw
from transformer_mt.model.lanes import (
    WIDTH,
    add,
    each,
    each_of,
    exp,
    factors,
    load,
    maximum,
    maximum_of,
    multiply,
    multiply_add,
    store,
    subtract,
    sum_of,
    turn,
)
from transformer_mt.model.masks import as_bias
from transformer_mt.model.numba_modules import tried

LANES = "a4615933af1830ca"  # the beginning of the SHA-256 of lanes.py: see there
_QUERIES = 4  # rows of queries taken at once: each vector of keys or values that is read serves all of them
_CHUNKS = 32  # shares of the heads of all sentences, for as many threads or fewer
_ZERO, _ONE = np.float32(0), np.float32(1)
_Q, _K, _V, _ADDED, _GRAD = range(5)  # rows of strides, which are of sentences, heads and positions
_NOTHING_DROPPED = np.uint32(0), np.uint32(0), np.uint32(0), _ONE

# What the passes below are put together from. Matrices are flat; `whole` is a number of rows filled up to a multiple.
_OPTIONS: Any = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_part = njit(error_model="numpy", **_OPTIONS)


@_part
def _fetch(x, start, stride, num_rows, size, factor, rows):
    """Rows of x times a factor, then zeros, to the end of `rows`."""
    times = each(factor)
    for i in range(num_rows):
        for d in range(0, size, WIDTH):
            store(rows, i * size + d, multiply(load(x, start + i * stride + d), times))
    for i in range(num_rows * size, len(rows), WIDTH):
        store(rows, i, each(_ZERO))


@_part
def _deliver(rows, num_rows, size, factor, x, start, stride):
    """The inverse of `_fetch`."""
    for i in range(num_rows):
        for d in range(0, size, WIDTH):
            store(x, start + i * stride + d, multiply(load(rows, i * size + d), each(factor)))


@_part
def _transpose(rows, size, columns):
    whole = len(rows) // size
    for i in range(0, whole, WIDTH):
        for d in range(0, size, WIDTH):
            turn(rows, i * size + d, size, columns, d * whole + i, whole)


@_part
def _products(a, first, size, columns, out):
    """Rows of a, from `first` on, with all columns."""
    whole = len(columns) // size
    for j in range(0, whole, WIDTH):
        sum0 = sum1 = sum2 = sum3 = each(_ZERO)
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


@_part
def _mixtures(weights, num_rows, rows, size, out):
    """Weights times rows."""
    whole = len(weights) // _QUERIES
    for d in range(0, size, WIDTH):
        sum0 = sum1 = sum2 = sum3 = each(_ZERO)
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


@_part
def _add_shares(weights, num_rows, a, first, size, rows):
    """To each row: rows of a, from `first` on, times what weighed it."""
    whole = len(weights) // _QUERIES
    for d in range(0, size, WIDTH):
        i = first * size + d
        a0, a1, a2, a3 = load(a, i), load(a, i + size), load(a, i + 2 * size), load(a, i + 3 * size)
        for j in range(num_rows):
            row = multiply_add(each_of(weights, j), a0, load(rows, j * size + d))
            row = multiply_add(each_of(weights, whole + j), a1, row)
            row = multiply_add(each_of(weights, 2 * whole + j), a2, row)
            store(rows, j * size + d, multiply_add(each_of(weights, 3 * whole + j), a3, row))


@_part
def _up_to(number, multiple):
    return -(-number // multiple) * multiple


@_part
def _start(strides, which, b, h):
    return b * strides[which, 0] + h * strides[which, 1]


@ParallelPass
def _forward(q, k, v, added, out, totals, sizes, strides, scale, first_key, second_key, dropped, kept):
    num_places, num_heads, num_queries = sizes[0], sizes[1], sizes[2]
    num_keys, size = sizes[3], sizes[4]
    for chunk in prange(_CHUNKS):
        start, end = chunk * num_places // _CHUNKS, (chunk + 1) * num_places // _CHUNKS
        if start == end:
            continue
        queries = np.empty(_up_to(num_queries, _QUERIES) * size, np.float32)
        rows = np.empty(_up_to(num_keys, WIDTH) * size, np.float32)
        columns = np.empty(len(rows), np.float32)
        whole = len(rows) // size
        weights, mixed = np.empty(_QUERIES * whole, np.float32), np.empty(_QUERIES * size, np.float32)
        for place in range(start, end):
            b, h = place // num_heads, place % num_heads
            _fetch(q, _start(strides, _Q, b, h), strides[_Q, 2], num_queries, size, scale, queries)
            _fetch(k, _start(strides, _K, b, h), strides[_K, 2], num_keys, size, _ONE, rows)
            _transpose(rows, size, columns)
            _fetch(v, _start(strides, _V, b, h), strides[_V, 2], num_keys, size, _ONE, rows)
            for first in range(0, num_queries, _QUERIES):
                _products(queries, first, size, columns, weights)
                for i in range(first, min(first + _QUERIES, num_queries)):
                    at, mask = (i - first) * whole, _start(strides, _ADDED, b, h) + i * strides[_ADDED, 2]
                    most = each(np.float32(-np.inf))
                    for j in range(0, whole, WIDTH):
                        score = add(load(weights, at + j), load(added, mask + j))
                        store(weights, at + j, score)
                        most = maximum(score, most)
                    largest = maximum_of(most)
                    most, total = each(largest), each(_ZERO)
                    for j in range(0, whole, WIDTH):
                        z = exp(subtract(load(weights, at + j), most))
                        store(weights, at + j, z)
                        total = add(total, z)
                    row = place * num_queries + i
                    totals[2 * row], totals[2 * row + 1] = largest, _ONE / sum_of(total)
                    factor = each_of(totals, 2 * row + 1)
                    for j in range(0, whole, WIDTH):
                        weight = multiply(load(weights, at + j), factor)
                        kept_factors = factors(np.uint32(row * num_keys + j), first_key, second_key, dropped, kept)
                        weight = multiply(weight, kept_factors)
                        store(weights, at + j, weight)
                _mixtures(weights, num_keys, rows, size, mixed)
                out_at = ((b * num_queries + first) * num_heads + h) * size
                _deliver(mixed, min(_QUERIES, num_queries - first), size, _ONE, out, out_at, num_heads * size)


@ParallelPass
def _backward(
    q, k, v, added, grad, totals, q_grad, k_grad, v_grad, sizes, strides, scale, first_key, second_key, dropped, kept
):
    num_places, num_heads, num_queries = sizes[0], sizes[1], sizes[2]
    num_keys, size = sizes[3], sizes[4]
    for chunk in prange(_CHUNKS):
        start, end = chunk * num_places // _CHUNKS, (chunk + 1) * num_places // _CHUNKS
        if start == end:
            continue
        queries = np.empty(_up_to(num_queries, _QUERIES) * size, np.float32)
        grads = np.empty(len(queries), np.float32)
        keys = np.empty(_up_to(num_keys, WIDTH) * size, np.float32)
        key_columns, value_columns = np.empty(len(keys), np.float32), np.empty(len(keys), np.float32)
        key_grads, value_grads = np.empty(len(keys), np.float32), np.empty(len(keys), np.float32)
        whole = len(keys) // size
        weights, score_grads = np.empty(_QUERIES * whole, np.float32), np.empty(_QUERIES * whole, np.float32)
        row_weights, mixed = np.empty(whole, np.float32), np.empty(_QUERIES * size, np.float32)
        for place in range(start, end):
            b, h = place // num_heads, place % num_heads
            _fetch(q, _start(strides, _Q, b, h), strides[_Q, 2], num_queries, size, scale, queries)
            _fetch(grad, _start(strides, _GRAD, b, h), strides[_GRAD, 2], num_queries, size, _ONE, grads)
            _fetch(v, _start(strides, _V, b, h), strides[_V, 2], num_keys, size, _ONE, keys)
            _transpose(keys, size, value_columns)
            _fetch(k, _start(strides, _K, b, h), strides[_K, 2], num_keys, size, _ONE, keys)
            _transpose(keys, size, key_columns)
            for j in range(0, len(keys), WIDTH):
                store(key_grads, j, each(_ZERO))
                store(value_grads, j, each(_ZERO))
            for first in range(0, num_queries, _QUERIES):
                _products(queries, first, size, key_columns, weights)
                _products(grads, first, size, value_columns, score_grads)
                for i in range(first, min(first + _QUERIES, num_queries)):
                    at, mask = (i - first) * whole, _start(strides, _ADDED, b, h) + i * strides[_ADDED, 2]
                    row = place * num_queries + i
                    most, factor, product = each_of(totals, 2 * row), each_of(totals, 2 * row + 1), each(_ZERO)
                    for j in range(0, whole, WIDTH):
                        score = add(load(weights, at + j), load(added, mask + j))
                        weight = multiply(exp(subtract(score, most)), factor)
                        store(row_weights, j, weight)
                        share = multiply(weight, load(score_grads, at + j))
                        kept_factors = factors(np.uint32(row * num_keys + j), first_key, second_key, dropped, kept)
                        share = multiply(share, kept_factors)
                        store(weights, at + j, multiply(weight, kept_factors))
                        store(score_grads, at + j, share)
                        product = add(product, share)
                    product = each(sum_of(product))
                    for j in range(0, whole, WIDTH):
                        less = multiply(load(row_weights, j), product)
                        store(score_grads, at + j, subtract(load(score_grads, at + j), less))
                _mixtures(score_grads, num_keys, keys, size, mixed)
                out_at = ((b * num_queries + first) * num_heads + h) * size
                _deliver(mixed, min(_QUERIES, num_queries - first), size, scale, q_grad, out_at, num_heads * size)
                # Queries beyond the last are zeros, and so are gradients of their outputs: they have no share.
                _add_shares(weights, num_keys, grads, first, size, value_grads)
                _add_shares(score_grads, num_keys, queries, first, size, key_grads)
            out_at = (b * num_keys * num_heads + h) * size
            _deliver(key_grads, num_keys, size, _ONE, k_grad, out_at, num_heads * size)
            _deliver(value_grads, num_keys, size, _ONE, v_grad, out_at, num_heads * size)


def takes(q: Tensor, mask: Tensor | None) -> bool:
    """Whether the passes are made for such numbers, such heads and a mask that nobody trains, and have all cores."""
    fits = q.dtype in DTYPES and q.size(-1) % WIDTH == 0 and (mask is None or not mask.requires_grad)
    return fits and works(q.dtype) and uses_all_cores()


@functools.cache
def works(dtype: torch.dtype) -> bool:
    """Whether the passes can be compiled for a type, which takes some ten seconds once and nothing from then on."""

    def once() -> None:
        q = torch.zeros(1, 1, 1, WIDTH, dtype=dtype, requires_grad=True)
        attention(q, q, q, None, 0.0, 1.0).sum().backward()

    with torch.inference_mode(False), torch.enable_grad():
        return tried(once)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float) -> Tensor:
    """`cpu_attention.training_attention` of what `takes` says yes to."""
    num_keys = k.size(2)
    expected = (*q.shape[:2], num_keys, q.size(-1))
    assert k.shape == v.shape == expected, f"{k.shape} and {v.shape} are not {expected}: the passes would read anywhere"
    assert q.dtype == k.dtype == v.dtype
    added = torch.zeros(1, 1, 1, num_keys, dtype=torch.float32) if mask is None else as_bias(mask).float()
    added = added.expand(*added.shape[:-1], num_keys)
    if num_keys % WIDTH:
        added = F.pad(added, (0, -num_keys % WIDTH), value=-torch.inf)
    drawn = _NOTHING_DROPPED
    if p:
        draw = new_draw(torch.Size((*q.shape[:3], num_keys)), p, q.dtype)
        assert isinstance(draw, CompiledDraw)
        drawn = draw.arguments
    return _Attention.apply(q, k, v, added.contiguous(), scale, drawn)


class _Attention(torch.autograd.Function):
    """With P = softmax(S) and D = P * factors: O = D V. Back: dV = D^T dO, dP = dO V^T * factors,
    dS = P * (dP - sum(dP * P)), dQ = dS K * scale, dK = dS^T Q * scale.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float, drawn: tuple) -> Tensor:
        """q (batch, num_heads, query_len, head_dim), k and v (batch, num_heads, key_len, head_dim), `added` to scores
        (broadcastable to batch, num_heads, query_len, key_len and more), -inf for what is no key -> the shape of q.
        """
        (batch, heads, num_queries, size), num_keys = q.shape, k.size(2)
        ctx.sizes = torch.tensor([batch * heads, heads, num_queries, num_keys, size])
        ctx.numbers = np.float32(scale), *drawn
        q, k, v = map(_in_rows, (q, k, v))
        out = torch.empty(batch, num_queries, heads, size, dtype=q.dtype)
        totals = torch.empty(batch * heads * num_queries * 2, dtype=torch.float32)
        spread = added.expand(batch, heads, num_queries, -1)
        ctx.strides = [x.stride()[:3] for x in (q, k, v, spread)]
        flat = [_flat(x) for x in (q, k, v)]
        ctx.save_for_backward(*flat, added.view(-1), totals)
        _forward(*flat, added.view(-1), out.view(-1), totals, ctx.sizes, torch.tensor(ctx.strides), *ctx.numbers)
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Of the output, in the shape of q -> of q, k and v."""
        *flat, added, totals = ctx.saved_tensors
        grad = _in_rows(grad_outputs[0])
        strides = torch.tensor([*ctx.strides, grad.stride()[:3]])
        places, heads, num_queries, num_keys, size = ctx.sizes.tolist()
        shapes = [(places // heads, length, heads, size) for length in (num_queries, num_keys, num_keys)]
        grads = [torch.empty(shape, dtype=grad.dtype) for shape in shapes]
        _backward(*flat, added, _flat(grad), totals, *(x.view(-1) for x in grads), ctx.sizes, strides, *ctx.numbers)
        return *(x.transpose(1, 2) for x in grads), None, None, None


def _in_rows(x: Tensor) -> Tensor:
    """x (batch, heads, length, head_dim) where there is nothing between its numbers, be it heads or positions that come
    first, else a copy.
    """
    return x if x.transpose(1, 2).is_contiguous() else x.contiguous()


def _flat(x: Tensor) -> Tensor:
    return x.view(-1) if x.is_contiguous() else x.transpose(1, 2).reshape(-1)
