"""Attention among unpadded tokens as Triton kernels: a program computes one head of one sentence, or a tile of it.

Short sentences are the case that they are made for. A head of one fits a tile of 16, 32 or 64 positions then, so the
weights never go to memory, and one pass backward is enough. torch's kernels take tiles of 64 or 128 of each sentence,
however short, and a mask for the padding. Sums and weights are float32 for every type of input. The backward pass draws
dropout again from the same seed.
"""

# Triton says that a call of a kernel never returns, which is true outside of kernels only.
# pyright: reportGeneralTypeIssues=false

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from transformer_mt.model.gpu.dropout_kernels import chosen


@triton.jit
def _places(rows, row_stride, number, head_dim: tl.constexpr, width: tl.constexpr):
    """Where the rows of a head lie behind its first, `width` numbers each, and which of the numbers exist."""
    columns = tl.arange(0, width)
    return rows[:, None] * row_stride + columns[None, :], (rows < number)[:, None] & (columns < head_dim)[None, :]


@triton.jit
def _load(head, rows, row_stride, number, head_dim: tl.constexpr, width: tl.constexpr):
    """Rows of a head that begins at a pointer: (rows, width), zeros for what does not exist."""
    places, there = _places(rows, row_stride, number, head_dim, width)
    return tl.load(head + places, mask=there, other=0.0)


@triton.jit
def _store(head, tile, rows, row_stride, number, head_dim: tl.constexpr, width: tl.constexpr):
    """The way back from `_load`."""
    places, there = _places(rows, row_stride, number, head_dim, width)
    tl.store(head + places, tile.to(head.dtype.element_ty), mask=there)


@triton.jit
def _head(tensor, first, row_stride, head, head_stride):
    """Where the first row of a sentence has this head."""
    return tensor + first.to(tl.int64) * row_stride + head * head_stride


@triton.jit
def _block(blocks, sentence):
    """First query, number of queries, first key, number of keys; in 32 bits, which take half of the registers."""
    start = blocks + 4 * sentence
    first_query, num_queries = tl.load(start).to(tl.int32), tl.load(start + 1).to(tl.int32)
    return first_query, num_queries, tl.load(start + 2).to(tl.int32), tl.load(start + 3).to(tl.int32)


@triton.jit(do_not_specialize=["last", "number"])
def clear(rows, blocks, last, column, row_size, number, block: tl.constexpr):
    """Write zeros to the few rows behind the last sentence's; `column` of its block is the first row there."""
    ends = blocks + 4 * last + column
    start = (tl.load(ends) + tl.load(ends + 1)) * row_size
    for at in range(start + tl.program_id(0) * block, number, tl.num_programs(0) * block):
        places = at + tl.arange(0, block)
        tl.store(rows + places, tl.zeros((block,), rows.dtype.element_ty), mask=places < number)


@triton.jit
def _scores(q_tile, k_tile, queries, keys, num_keys, scale, causal: tl.constexpr):
    """Of a tile: (query_tile, key_tile), to base 2, -inf where a query may not see a key."""
    scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
    seen = (keys < num_keys)[None, :]
    if causal:
        seen = seen & (queries[:, None] >= keys[None, :])
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _kept(seed, rows, first_key, most_keys, threshold, query_tile: tl.constexpr, key_tile: tl.constexpr):
    """Which weights of a tile dropout keeps. `rows` (query_tile,) number the batch's pairs of query and head."""
    return chosen(seed, rows * tl.cdiv(most_keys, key_tile) + first_key // key_tile, threshold, query_tile, key_tile)


@triton.jit(do_not_specialize=["most_keys"])
def attention_forward(
    q, k, v, out, totals, blocks, seeds, scale, threshold, kept_scale, num_heads, group, most_keys,
    q_row, q_head, k_row, k_head, v_row, v_head,
    head_dim: tl.constexpr, width: tl.constexpr, query_tile: tl.constexpr, key_tile: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, whole: tl.constexpr,
):  # fmt: skip
    """`out`, and for the backward pass in `totals` (num_queries, num_heads) the logarithms of sums, to base 2. `whole`:
    one tile holds any head.
    """
    sentence, head = tl.program_id(0), tl.program_id(1)
    first_query, num_queries, first_key, num_keys = _block(blocks, sentence)
    start = tl.program_id(2) * query_tile
    if start >= num_queries:
        return
    queries = start + tl.arange(0, query_tile)
    rows = (first_query + queries) * num_heads + head
    q_tile = _load(_head(q, first_query, q_row, head, q_head), queries, q_row, num_queries, head_dim, width)
    k_start = _head(k, first_key, k_row, head // group, k_head)
    v_start = _head(v, first_key, v_row, head // group, v_head)
    seed = tl.load(seeds)
    if whole:
        keys = tl.arange(0, key_tile)
        k_tile = _load(k_start, keys, k_row, num_keys, head_dim, width)
        v_tile = _load(v_start, keys, v_row, num_keys, head_dim, width)
        scores = _scores(q_tile, k_tile, queries, keys, num_keys, scale, causal)
        largest = tl.max(scores, 1)
        weights = tl.exp2(scores - largest[:, None])
        total = tl.sum(weights, 1)
        if drops:
            kept = _kept(seed, rows, 0, most_keys, threshold, query_tile, key_tile)
            weights = tl.where(kept, weights, 0.0)
        mixed = tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
    else:
        largest = tl.full((query_tile,), float("-inf"), tl.float32)
        total = tl.zeros((query_tile,), tl.float32)
        mixed = tl.zeros((query_tile, width), tl.float32)
        end = tl.minimum(num_keys, start + query_tile) if causal else num_keys
        for at in range(0, end, key_tile):
            keys = at + tl.arange(0, key_tile)
            k_tile = _load(k_start, keys, k_row, num_keys, head_dim, width)
            v_tile = _load(v_start, keys, v_row, num_keys, head_dim, width)
            scores = _scores(q_tile, k_tile, queries, keys, num_keys, scale, causal)
            newest = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - newest[:, None])
            shrunk = tl.exp2(largest - newest)
            total = total * shrunk + tl.sum(weights, 1)
            if drops:
                kept = _kept(seed, rows, at, most_keys, threshold, query_tile, key_tile)
                weights = tl.where(kept, weights, 0.0)
            mixed = mixed * shrunk[:, None] + tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
            largest = newest
    out_start = _head(out, first_query, num_heads * head_dim, head, head_dim)
    mixed = mixed * (kept_scale / total)[:, None]
    _store(out_start, mixed, queries, num_heads * head_dim, num_queries, head_dim, width)
    tl.store(totals + rows, largest + tl.log2(total), mask=queries < num_queries)


@triton.jit
def _score_gradients(
    q_tile, k_tile, v_tile, grad, out, totals, queries, keys, seed, scale, threshold, kept_scale, first_query,
    num_queries, first_key, num_keys, head, num_heads, most_keys, head_dim: tl.constexpr, width: tl.constexpr,
    query_tile: tl.constexpr, key_tile: tl.constexpr, causal: tl.constexpr, drops: tl.constexpr, whole: tl.constexpr,
):  # fmt: skip
    """The weights that values were mixed by, and the gradients of scores: float32, (query_tile, key_tile) each."""
    rows = (first_query + queries) * num_heads + head
    total = tl.load(totals + rows, mask=queries < num_queries, other=0.0)
    weights = tl.exp2(_scores(q_tile, k_tile, queries, keys, num_keys, scale, causal) - total[:, None])
    weight_grads = tl.dot(grad, tl.trans(v_tile), input_precision="ieee")
    mixed_by = weights
    if drops:
        kept = _kept(seed, rows, first_key, most_keys, threshold, query_tile, key_tile)
        weight_grads = tl.where(kept, weight_grads * kept_scale, 0.0)
        mixed_by = tl.where(kept, weights * kept_scale, 0.0)
    if whole:
        mean = tl.sum(weights * weight_grads, 1)
    else:  # the same, where other tiles have a part of it
        row = num_heads * head_dim
        out_tile = _load(_head(out, first_query, row, head, head_dim), queries, row, num_queries, head_dim, width)
        mean = tl.sum(grad.to(tl.float32) * out_tile.to(tl.float32), 1)
    return mixed_by, weights * (weight_grads - mean[:, None])


@triton.jit(do_not_specialize=["most_keys"])
def attention_backward_keys(
    q, k, v, out, grad, totals, q_grad, k_grad, v_grad, blocks, seeds, scale, score_scale, threshold, kept_scale,
    num_heads, group, most_keys, q_row, q_head, k_row, k_head, v_row, v_head, q_grad_row, k_grad_row, v_grad_row,
    head_dim: tl.constexpr, width: tl.constexpr, query_tile: tl.constexpr, key_tile: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, whole: tl.constexpr,
):  # fmt: skip
    """Gradients of keys and values, for a tile of the keys; where a tile holds the whole head, of the queries too.
    The heads of a gradient's row lie side by side; between rows there may be those of other gradients.
    """
    sentence, key_head = tl.program_id(0), tl.program_id(1)
    first_query, num_queries, first_key, num_keys = _block(blocks, sentence)
    start = tl.program_id(2) * key_tile
    if start >= num_keys:
        return
    keys = start + tl.arange(0, key_tile)
    k_tile = _load(_head(k, first_key, k_row, key_head, k_head), keys, k_row, num_keys, head_dim, width)
    v_tile = _load(_head(v, first_key, v_row, key_head, v_head), keys, v_row, num_keys, head_dim, width)
    seed = tl.load(seeds)
    k_sum, v_sum = tl.zeros((key_tile, width), tl.float32), tl.zeros((key_tile, width), tl.float32)
    lowest = start // query_tile * query_tile if causal and not whole else 0
    end = query_tile if whole else num_queries
    for member in range(0, group):
        head = key_head * group + member
        q_start = _head(q, first_query, q_row, head, q_head)
        grad_start = _head(grad, first_query, num_heads * head_dim, head, head_dim)
        for at in range(lowest, end, query_tile):
            queries = at + tl.arange(0, query_tile)
            q_tile = _load(q_start, queries, q_row, num_queries, head_dim, width)
            grad_tile = _load(grad_start, queries, num_heads * head_dim, num_queries, head_dim, width)
            mixed_by, score_grads = _score_gradients(
                q_tile, k_tile, v_tile, grad_tile, out, totals, queries, keys, seed, scale, threshold, kept_scale,
                first_query, num_queries, start, num_keys, head, num_heads, most_keys, head_dim, width, query_tile,
                key_tile, causal, drops, whole,
            )  # fmt: skip
            v_sum += tl.dot(tl.trans(mixed_by).to(grad_tile.dtype), grad_tile, input_precision="ieee")
            score_grads = score_grads.to(q_tile.dtype)
            k_sum += tl.dot(tl.trans(score_grads), q_tile, input_precision="ieee")
            if whole:
                q_sum = tl.dot(score_grads, k_tile, input_precision="ieee") * score_scale
                q_grad_start = _head(q_grad, first_query, q_grad_row, head, head_dim)
                _store(q_grad_start, q_sum, queries, q_grad_row, num_queries, head_dim, width)
    k_grad_start = _head(k_grad, first_key, k_grad_row, key_head, head_dim)
    _store(k_grad_start, k_sum * score_scale, keys, k_grad_row, num_keys, head_dim, width)
    v_grad_start = _head(v_grad, first_key, v_grad_row, key_head, head_dim)
    _store(v_grad_start, v_sum, keys, v_grad_row, num_keys, head_dim, width)


@triton.jit(do_not_specialize=["most_keys"])
def attention_backward_queries(
    q, k, v, out, grad, totals, q_grad, blocks, seeds, scale, score_scale, threshold, kept_scale, num_heads, group,
    most_keys, q_row, q_head, k_row, k_head, v_row, v_head, q_grad_row,
    head_dim: tl.constexpr, width: tl.constexpr, query_tile: tl.constexpr, key_tile: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of the queries, where a head has several tiles."""
    sentence, head = tl.program_id(0), tl.program_id(1)
    first_query, num_queries, first_key, num_keys = _block(blocks, sentence)
    start = tl.program_id(2) * query_tile
    if start >= num_queries:
        return
    queries = start + tl.arange(0, query_tile)
    row = num_heads * head_dim
    q_tile = _load(_head(q, first_query, q_row, head, q_head), queries, q_row, num_queries, head_dim, width)
    grad_tile = _load(_head(grad, first_query, row, head, head_dim), queries, row, num_queries, head_dim, width)
    k_start = _head(k, first_key, k_row, head // group, k_head)
    v_start = _head(v, first_key, v_row, head // group, v_head)
    seed = tl.load(seeds)
    q_sum = tl.zeros((query_tile, width), tl.float32)
    end = tl.minimum(num_keys, start + query_tile) if causal else num_keys
    for at in range(0, end, key_tile):
        keys = at + tl.arange(0, key_tile)
        k_tile = _load(k_start, keys, k_row, num_keys, head_dim, width)
        v_tile = _load(v_start, keys, v_row, num_keys, head_dim, width)
        _, score_grads = _score_gradients(
            q_tile, k_tile, v_tile, grad_tile, out, totals, queries, keys, seed, scale, threshold, kept_scale,
            first_query, num_queries, at, num_keys, head, num_heads, most_keys, head_dim, width, query_tile, key_tile,
            causal, drops, False,
        )  # fmt: skip
        q_sum += tl.dot(score_grads.to(k_tile.dtype), k_tile, input_precision="ieee")
    q_grad_start = _head(q_grad, first_query, q_grad_row, head, head_dim)
    _store(q_grad_start, q_sum * score_scale, queries, q_grad_row, num_queries, head_dim, width)
