"""Attention in training on a CPU, compiled by numba: one head of one sentence after another, within the caches.

The matrix of weights never goes to memory, and no input is moved into another layout. The backward pass computes the
weights again. Sums and weights are float32 for every type of input.
"""

import functools
from typing import NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.machine.numba_compile import ParallelPass, uses_all_cores
from transformer_mt.machine.numba_modules import tried
from transformer_mt.model.cpu.head_passes import (
    ONE,
    QUERIES,
    ZERO,
    add_shares,
    deliver,
    fetch,
    mixtures,
    part,
    products,
    start_of,
    transpose,
    up_to,
)
from transformer_mt.model.cpu.kernels import DTYPES, new_draw
from transformer_mt.model.cpu.lanes import (
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
    store,
    subtract,
    sum_of,
)
from transformer_mt.model.masks import as_bias
from transformer_mt.model.unpadded import BlockDiagonal

PARTS = "ff4797990530bc92"  # the beginning of the SHA-256 of lanes.py and head_passes.py: see lanes.py
_CHUNKS = 32  # the heads of all sentences are parted into so many shares, for as many threads or fewer
_Q, _K, _V, _ADDED, _GRAD = range(5)  # rows of `strides`: for a step to the next row, head, position
_FIRST_QUERY, _NUM_QUERIES, _FIRST_KEY, _NUM_KEYS, _MASK = range(5)  # columns of `blocks`: a sentence is a row
_NOTHING_DROPPED = np.uint32(0), np.uint32(0), np.uint32(0), ONE


@part
def _weigh(weights, at, whole, added, mask, totals, row, number, draw):
    """A row of scores, `whole` of them from `at` on, becomes weights with dropout; `number` is that of its first
    draw. `totals` gets the largest score, and one over the sum of the exponentials.
    """
    most = each(np.float32(-np.inf))
    for j in range(0, whole, WIDTH):
        score = add(load(weights, at + j), load(added, mask + j))
        store(weights, at + j, score)
        most = maximum(score, most)
    largest = maximum_of(most)
    most, total = each(largest), each(ZERO)
    for j in range(0, whole, WIDTH):
        z = exp(subtract(load(weights, at + j), most))
        store(weights, at + j, z)
        total = add(total, z)
    totals[2 * row], totals[2 * row + 1] = largest, ONE / sum_of(total)
    factor = each_of(totals, 2 * row + 1)
    for j in range(0, whole, WIDTH):
        kept_factors = factors(np.uint32(number + j), *draw)
        store(weights, at + j, multiply(multiply(load(weights, at + j), factor), kept_factors))


@part
def _score_gradients(weights, grads, row_weights, at, whole, added, mask, totals, row, number, draw):
    """A row of scores becomes weights as in `_weigh`, and the gradients of these become those of the scores."""
    largest, factor, product = each_of(totals, 2 * row), each_of(totals, 2 * row + 1), each(ZERO)
    for j in range(0, whole, WIDTH):
        score = add(load(weights, at + j), load(added, mask + j))
        weight = multiply(exp(subtract(score, largest)), factor)
        store(row_weights, j, weight)
        kept_factors = factors(np.uint32(number + j), *draw)
        share = multiply(multiply(weight, load(grads, at + j)), kept_factors)
        store(weights, at + j, multiply(weight, kept_factors))
        store(grads, at + j, share)
        product = add(product, share)
    product = each(sum_of(product))
    for j in range(0, whole, WIDTH):
        less = multiply(load(row_weights, j), product)
        store(grads, at + j, subtract(load(grads, at + j), less))


@ParallelPass
def _forward(q, k, v, added, out, totals, blocks, sizes, strides, scale, first_key, second_key, dropped, kept):
    num_heads, num_key_heads, size = sizes[0], sizes[1], sizes[2]
    most_queries, most_keys, num_places = sizes[3], sizes[4], len(blocks) * num_key_heads
    draw = first_key, second_key, dropped, kept
    for chunk in prange(_CHUNKS):
        start, end = chunk * num_places // _CHUNKS, (chunk + 1) * num_places // _CHUNKS
        if start == end:
            continue
        queries_room = np.empty(up_to(most_queries, QUERIES) * size, np.float32)
        rows_room = np.empty(up_to(most_keys, WIDTH) * size, np.float32)
        columns_room = np.empty(len(rows_room), np.float32)
        weights_room = np.empty(QUERIES * up_to(most_keys, WIDTH), np.float32)
        mixed = np.empty(QUERIES * size, np.float32)
        for place in range(start, end):
            b, key_head = place // num_key_heads, place % num_key_heads
            num_queries, num_keys = blocks[b, _NUM_QUERIES], blocks[b, _NUM_KEYS]
            first_row, first_key_row = blocks[b, _FIRST_QUERY], blocks[b, _FIRST_KEY]
            whole = up_to(num_keys, WIDTH)
            queries = queries_room[: up_to(num_queries, QUERIES) * size]
            rows, columns = rows_room[: whole * size], columns_room[: whole * size]
            weights = weights_room[: QUERIES * whole]
            fetch(k, start_of(strides, _K, first_key_row, key_head), strides[_K, 2], num_keys, size, ONE, rows)
            transpose(rows, size, columns)
            fetch(v, start_of(strides, _V, first_key_row, key_head), strides[_V, 2], num_keys, size, ONE, rows)
            group = num_heads // num_key_heads
            for h in range(key_head * group, (key_head + 1) * group):
                fetch(q, start_of(strides, _Q, first_row, h), strides[_Q, 2], num_queries, size, scale, queries)
                mask_start = start_of(strides, _ADDED, blocks[b, _MASK], h)
                for first in range(0, num_queries, QUERIES):
                    products(queries, first, size, columns, weights)
                    for i in range(first, min(first + QUERIES, num_queries)):
                        at, mask = (i - first) * whole, mask_start + i * strides[_ADDED, 2]
                        row = first_row * num_heads + h * num_queries + i
                        number = row * most_keys
                        _weigh(weights, at, whole, added, mask, totals, row, number, draw)
                    mixtures(weights, num_keys, rows, size, mixed)
                    out_at = ((first_row + first) * num_heads + h) * size
                    deliver(mixed, min(QUERIES, num_queries - first), size, ONE, out, out_at, num_heads * size)


@ParallelPass
def _backward(
    q, k, v, added, grad, totals, q_grad, k_grad, v_grad, blocks, sizes, strides, scale, first_key, second_key, dropped,
    kept,
):  # fmt: skip
    num_heads, num_key_heads, size = sizes[0], sizes[1], sizes[2]
    most_queries, most_keys, num_places = sizes[3], sizes[4], len(blocks) * num_key_heads
    draw = first_key, second_key, dropped, kept
    for chunk in prange(_CHUNKS):
        start, end = chunk * num_places // _CHUNKS, (chunk + 1) * num_places // _CHUNKS
        if start == end:
            continue
        queries_room = np.empty(up_to(most_queries, QUERIES) * size, np.float32)
        grads_room = np.empty(len(queries_room), np.float32)
        most = up_to(most_keys, WIDTH)
        keys_room = np.empty(most * size, np.float32)
        key_columns_room, value_columns_room = np.empty(most * size, np.float32), np.empty(most * size, np.float32)
        key_grads_room, value_grads_room = np.empty(most * size, np.float32), np.empty(most * size, np.float32)
        weights_room, score_grads_room = np.empty(QUERIES * most, np.float32), np.empty(QUERIES * most, np.float32)
        row_weights, mixed = np.empty(most, np.float32), np.empty(QUERIES * size, np.float32)
        for place in range(start, end):
            b, key_head = place // num_key_heads, place % num_key_heads
            num_queries, num_keys = blocks[b, _NUM_QUERIES], blocks[b, _NUM_KEYS]
            first_row, first_key_row = blocks[b, _FIRST_QUERY], blocks[b, _FIRST_KEY]
            whole = up_to(num_keys, WIDTH)
            queries = queries_room[: up_to(num_queries, QUERIES) * size]
            grads, keys = grads_room[: len(queries)], keys_room[: whole * size]
            key_columns, value_columns = key_columns_room[: whole * size], value_columns_room[: whole * size]
            key_grads, value_grads = key_grads_room[: whole * size], value_grads_room[: whole * size]
            weights, score_grads = weights_room[: QUERIES * whole], score_grads_room[: QUERIES * whole]
            fetch(v, start_of(strides, _V, first_key_row, key_head), strides[_V, 2], num_keys, size, ONE, keys)
            transpose(keys, size, value_columns)
            fetch(k, start_of(strides, _K, first_key_row, key_head), strides[_K, 2], num_keys, size, ONE, keys)
            transpose(keys, size, key_columns)
            for j in range(0, len(keys), WIDTH):
                store(key_grads, j, each(ZERO))
                store(value_grads, j, each(ZERO))
            group = num_heads // num_key_heads
            for h in range(key_head * group, (key_head + 1) * group):
                fetch(q, start_of(strides, _Q, first_row, h), strides[_Q, 2], num_queries, size, scale, queries)
                fetch(grad, start_of(strides, _GRAD, first_row, h), strides[_GRAD, 2], num_queries, size, ONE, grads)
                mask_start = start_of(strides, _ADDED, blocks[b, _MASK], h)
                for first in range(0, num_queries, QUERIES):
                    products(queries, first, size, key_columns, weights)
                    products(grads, first, size, value_columns, score_grads)
                    for i in range(first, min(first + QUERIES, num_queries)):
                        at, mask = (i - first) * whole, mask_start + i * strides[_ADDED, 2]
                        row = first_row * num_heads + h * num_queries + i
                        number = row * most_keys
                        _score_gradients(
                            weights, score_grads, row_weights, at, whole, added, mask, totals, row, number, draw
                        )
                    mixtures(score_grads, num_keys, keys, size, mixed)
                    out_at = ((first_row + first) * num_heads + h) * size
                    deliver(mixed, min(QUERIES, num_queries - first), size, scale, q_grad, out_at, num_heads * size)
                    # Queries beyond the last are zeros, and so are gradients of their outputs: they have no share.
                    add_shares(weights, num_keys, grads, first, size, value_grads)
                    add_shares(score_grads, num_keys, queries, first, size, key_grads)
            out_at = (first_key_row * num_key_heads + key_head) * size
            deliver(key_grads, num_keys, size, ONE, k_grad, out_at, num_key_heads * size)
            deliver(value_grads, num_keys, size, ONE, v_grad, out_at, num_key_heads * size)


def takes(q: Tensor, mask: Tensor | None) -> bool:
    """Whether the passes fit such heads and such a mask, which nobody may train, and run on all cores."""
    return (mask is None or not mask.requires_grad) and takes_heads(q.dtype, q.size(-1))


def takes_heads(dtype: torch.dtype, head_dim: int) -> bool:
    """`takes` for heads of this type and size, whatever the mask."""
    return dtype in DTYPES and head_dim % WIDTH == 0 and works(dtype) and uses_all_cores()


@functools.cache
def works(dtype: torch.dtype) -> bool:
    """Whether the passes compile for a type. The first call compiles them, which takes some ten seconds once."""

    def once() -> None:
        q = torch.zeros(1, 1, 1, WIDTH, dtype=dtype, requires_grad=True)
        attention(q, q, q, None, 0.0, 1.0).sum().backward()

    with torch.inference_mode(False), torch.enable_grad():
        return tried(once)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | BlockDiagonal | None, p: float, scale: float) -> Tensor:
    """`attention.training_attention` for inputs that `takes` accepts. k and v may have fewer heads than q: each of
    their heads serves an equal number of neighbouring heads of q.
    """
    assert k.shape == v.shape == (q.size(0), k.size(1), k.size(2), q.size(3)), (
        f"{k.shape} and {v.shape} do not go with {q.shape}: the passes would read anywhere"
    )
    assert q.size(1) % k.size(1) == 0
    assert q.dtype == k.dtype == v.dtype
    bounds = _whose(mask, q, k) if isinstance(mask, BlockDiagonal) else _everybody(mask, q, k)
    drawn = new_draw(p).arguments if p else _NOTHING_DROPPED
    return _Attention.apply(q, k, v, bounds, scale, drawn)


class _Bounds(NamedTuple):
    """The rows of each sentence, and the mask that is added to its scores.

    `added` is the mask, a flat tensor. A sentence's part begins at its row `_MASK`; `strides` are the steps to the next
    such row, head and query. Each row of the mask is filled up to a multiple of `WIDTH` keys.
    """

    blocks: Tensor
    most_queries: int
    most_keys: int
    added: Tensor
    strides: tuple[int, int, int]


def _everybody(mask: Tensor | None, q: Tensor, k: Tensor) -> _Bounds:
    """The bounds of sentences of one length, with a mask as in `attention.masked`."""
    (num_sentences, num_heads, num_queries, _), num_keys = q.shape, k.size(2)
    added = torch.zeros(1, 1, 1, num_keys, dtype=torch.float32) if mask is None else as_bias(mask).float()
    added = added.expand(*added.shape[:-1], num_keys)
    if num_keys % WIDTH:
        added = F.pad(added, (0, -num_keys % WIDTH), value=-torch.inf)
    added = added.contiguous()
    of_sentences, of_heads, of_queries, _ = added.expand(num_sentences, num_heads, num_queries, -1).stride()
    number = torch.arange(num_sentences)
    lengths = torch.tensor([num_queries, num_keys]).expand(num_sentences, -1)
    columns = number * num_queries, lengths[:, 0], number * num_keys, lengths[:, 1], number
    strides = of_sentences, of_heads, of_queries
    return _Bounds(torch.stack(columns, dim=1), num_queries, num_keys, added.view(-1), strides)


def _whose(mask: BlockDiagonal, q: Tensor, k: Tensor) -> _Bounds:
    """The bounds of unpadded sentences, which follow each other in one row.

    Their mask is one row: zeros, then -inf. A query reads it from the place behind which there is one zero for each key
    that the query sees.
    """
    assert len(q) == 1, "unpadded tokens are one row"
    last_query, last_key = (mask.blocks[-1, i] + mask.blocks[-1, i + 1] for i in (0, 2))
    assert last_query <= q.size(2), "there are fewer rows than queries"
    assert last_key <= k.size(2), "there are fewer rows than keys"
    key_lengths = mask.blocks[:, 3]
    assert not mask.causal or torch.equal(mask.blocks[:, 1], key_lengths)
    most_queries, most_keys = mask.most
    added = torch.zeros(2 * most_keys + WIDTH, dtype=torch.float32)
    added[most_keys:] = -torch.inf
    seen_by_first = torch.ones_like(key_lengths) if mask.causal else key_lengths
    blocks = torch.cat((mask.blocks, most_keys - seen_by_first[:, None]), dim=1)
    return _Bounds(blocks, most_queries, most_keys, added, (1, 0, -1 if mask.causal else 0))


class _Attention(torch.autograd.Function):
    """With P = softmax(S) and D = P * factors: O = D V. Back: dV = D^T dO, dP = dO V^T * factors,
    dS = P * (dP - sum(dP * P)), dQ = dS K * scale, dK = dS^T Q * scale.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, bounds: _Bounds, scale: float, drawn: tuple) -> Tensor:
        """q (batch, num_heads, query_len, head_dim), k and v (batch, num_kv_heads, key_len, head_dim) -> the shape of
        q; zeros in rows that belong to no sentence.
        """
        (batch, num_heads, num_queries, size), num_key_heads = q.shape, k.size(1)
        ctx.shapes = [(len(x), x.size(2), x.size(1), size) for x in (q, k, v)]
        ctx.sizes = torch.tensor([num_heads, num_key_heads, size, bounds.most_queries, bounds.most_keys])
        ctx.numbers = np.float32(scale), *drawn
        q, k, v = map(_in_rows, (q, k, v))
        out = torch.empty(batch, num_queries, num_heads, size, dtype=q.dtype)
        totals = torch.empty(batch * num_heads * num_queries * 2, dtype=torch.float32)
        ctx.strides = [*map(_strides, (q, k, v)), bounds.strides]
        flat = [_flat(x) for x in (q, k, v)]
        ctx.save_for_backward(*flat, bounds.added, bounds.blocks, totals)
        strides = torch.tensor(ctx.strides)
        _forward(*flat, bounds.added, out.view(-1), totals, bounds.blocks, ctx.sizes, strides, *ctx.numbers)
        _zero_behind(out, bounds.blocks, _FIRST_QUERY)
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Gradient of the output, in the shape of q -> those of q, k and v."""
        *flat, added, blocks, totals = ctx.saved_tensors
        grad = _in_rows(grad_outputs[0])
        strides = torch.tensor([*ctx.strides, _strides(grad)])
        grads = [torch.empty(shape, dtype=grad.dtype) for shape in ctx.shapes]
        of_inputs = [x.view(-1) for x in grads]
        _backward(*flat, added, _flat(grad), totals, *of_inputs, blocks, ctx.sizes, strides, *ctx.numbers)
        for x, first in zip(grads, (_FIRST_QUERY, _FIRST_KEY, _FIRST_KEY), strict=True):
            _zero_behind(x, blocks, first)
        return *(x.transpose(1, 2) for x in grads), None, None, None


def _zero_behind(x: Tensor, blocks: Tensor, first: int) -> None:
    """Zero the rows of x (batch, length, heads, head_dim) behind the last sentence."""
    x.flatten(0, 1)[int(blocks[-1, first] + blocks[-1, first + 1]) :] = 0


def _strides(x: Tensor) -> tuple[int, int, int]:
    """Strides of x (batch, heads, length, head_dim), a result of `_in_rows`: the steps to the next row, where the rows
    of all sentences are counted; to the next head; and to the next position.
    """
    # A sentence's numbers lie together in memory, whether heads or positions come first.
    return x.stride(2) if len(x) == 1 else x.size(1) * x.size(3), x.stride(1), x.stride(2)


def _in_rows(x: Tensor) -> Tensor:
    """x (batch, heads, length, head_dim) itself where its numbers lie without gaps, heads or positions first; else a
    copy.
    """
    return x if x.transpose(1, 2).is_contiguous() else x.contiguous()


def _flat(x: Tensor) -> Tensor:
    return x.view(-1) if x.is_contiguous() else x.transpose(1, 2).reshape(-1)
