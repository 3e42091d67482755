"""Attention among unpadded tokens on a GPU, with dropout on the weights: an operation that torch.compile knows of."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_mt.model.gpu.dropout import STEPS, new_seed, threshold_of
from transformer_mt.model.gpu.triton_works import triton_works
from transformer_mt.model.unpadded import BlockDiagonal

# Whose tiles fit the memory of a processor.
_WIDEST_HEADS = {torch.float16: 128, torch.bfloat16: 128, torch.float32: 64}
# The sides of a tile, and how many warps compute one forward and backward: the fastest on an H100.
_TILES = {16: (1, 1), 32: (2, 4), 64: (4, 4)}
_QUERIES, _KEYS = 0, 2  # columns of `BlockDiagonal.blocks`
_CLEARED, _CLEARERS = 4096, 128  # numbers that a program clears at a time, and programs
_IN_BASE_2 = math.log2(math.e)  # the kernels raise 2 to the power of scores


def _kernels() -> Any:
    """`attention_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import attention_kernels

    return attention_kernels


def takes_heads(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether `unpadded_attention` computes such heads there."""
    return head_dim <= _WIDEST_HEADS.get(dtype, 0) and triton_works(device)


def unpadded_attention(q: Tensor, k: Tensor, v: Tensor, mask: BlockDiagonal, p: float, scale: float) -> Tensor:
    """`cpu.attention.unpadded_attention` where `takes_heads` said yes, with the same shapes."""
    heads = [x.squeeze(0).transpose(0, 1) for x in (q, k, v)]
    return joint_attention(heads, q.size(1), mask, p, scale).transpose(0, 1)[None]


def joint_attention(heads: list[Tensor], num_heads: int, mask: BlockDiagonal, p: float, scale: float) -> Tensor:
    """The same of heads as products leave them; those of several products may come as one tensor, and so do their
    gradients then.

    heads (positions, number, head_dim): queries, keys and values in one tensor, where they have the same positions;
    queries, and keys and values; or each in its own -> (num_queries, num_heads, head_dim).
    """
    return attention(heads, mask.blocks, num_heads, *mask.most, mask.causal, p, scale)[0]


def _parted(heads: list[Tensor], num_heads: int) -> Sequence[Tensor]:
    """Queries, keys and values among the heads that `joint_attention` takes: views."""
    if len(heads) == 1:
        num_kv_heads = (heads[0].size(1) - num_heads) // 2
        return heads[0].split([num_heads, num_kv_heads, num_kv_heads], dim=1)
    if len(heads) == 2:
        return heads[0], *heads[1].chunk(2, dim=1)
    return heads


def _launch_sizes(q: Tensor, most_queries: int, most_keys: int, backward: bool) -> dict:
    """The sizes that a kernel is compiled for."""
    longest = max(most_queries, most_keys)
    side = next((side for side in _TILES if longest <= side), max(_TILES))
    width = max(16, 1 << (q.size(2) - 1).bit_length())
    return {
        "head_dim": q.size(2),
        "width": width,
        "query_tile": side,
        "key_tile": side,
        "num_warps": _TILES[side][backward],
        "num_stages": 1,
    }


def _is_whole(sizes: dict, most_queries: int, most_keys: int) -> bool:
    """Whether one tile holds any head."""
    return max(most_queries, most_keys) <= sizes["query_tile"]


def _strides(*tensors: Tensor) -> list[int]:
    """Of each, the steps to the next position and the next head."""
    return [step for tensor in tensors for step in tensor.stride()[:2]]


def _dense(x: Tensor) -> Tensor:
    """With the numbers of a head side by side."""
    return x if x.stride(2) == 1 else x.contiguous()


def _clear(rows: Tensor, blocks: Tensor, column: int) -> None:
    """Zeros behind the last sentence, which no kernel writes to."""
    number = rows.numel()
    _kernels().clear[(_CLEARERS,)](rows, blocks, len(blocks) - 1, column, number // len(rows), number, block=_CLEARED)


# In words, because torch 2.6 knows no `list[Tensor]`.
_SIZES = "Tensor blocks, SymInt num_heads, SymInt most_queries, SymInt most_keys, bool causal, float p, float scale"


@torch.library.custom_op(
    "transformer_mt::unpadded_attention",
    mutates_args=(),
    schema=f"(Tensor[] heads, {_SIZES}) -> (Tensor, Tensor, Tensor)",
)
def attention(
    heads: list[Tensor], blocks: Tensor, num_heads: int, most_queries: int, most_keys: int, causal: bool, p: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """heads as in `joint_attention`, blocks as `BlockDiagonal.blocks`, whose longest sentences have `most_queries` and
    `most_keys` -> (num_queries, num_heads, head_dim), zeros for rows of no sentence; and for the backward pass the
    rows' sums and the seed of dropout.
    """
    q, k, v = _parted([_dense(x) for x in heads], num_heads)
    sizes = _launch_sizes(q, most_queries, most_keys, backward=False)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    totals = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    threshold = threshold_of(p)
    seed = new_seed(q.device, threshold)
    grid = len(blocks), num_heads, -(-most_queries // sizes["query_tile"])
    _kernels().attention_forward[grid](
        q, k, v, out, totals, blocks, seed, scale * _IN_BASE_2, threshold, STEPS / max(threshold, 1), num_heads,
        num_heads // k.size(1), most_keys, *_strides(q, k, v), causal=causal, drops=threshold < STEPS,
        whole=_is_whole(sizes, most_queries, most_keys), **sizes,
    )  # fmt: skip
    _clear(out, blocks, _QUERIES)
    return out, totals, seed


@attention.register_fake
def _(
    heads: list[Tensor], blocks: Tensor, num_heads: int, most_queries: int, most_keys: int, causal: bool, p: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    shape, head_dim = (heads[0].size(0), num_heads), heads[0].size(2)
    return (
        heads[0].new_empty(*shape, head_dim),
        heads[0].new_empty(shape, dtype=torch.float32),
        heads[0].new_empty(1, dtype=torch.int64),
    )


@torch.library.custom_op(
    "transformer_mt::unpadded_attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor[] heads, Tensor out, Tensor totals, Tensor seed, {_SIZES}) -> Tensor[]",
)
def attention_backward(
    grad: Tensor, heads: list[Tensor], out: Tensor, totals: Tensor, seed: Tensor, blocks: Tensor, num_heads: int,
    most_queries: int, most_keys: int, causal: bool, p: float, scale: float,
) -> list[Tensor]:  # fmt: skip
    """The gradients of the heads, in as many tensors."""
    heads, grad, out = [_dense(x) for x in heads], grad.contiguous(), out.contiguous()
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in heads]
    q, k, v = _parted(heads, num_heads)
    q_grad, k_grad, v_grad = _parted(grads, num_heads)
    num_kv_heads, sizes = k.size(1), _launch_sizes(q, most_queries, most_keys, backward=True)
    given = q, k, v, out, grad, totals
    threshold = threshold_of(p)
    dropout = threshold, STEPS / max(threshold, 1)
    rest = (scale * _IN_BASE_2, scale, *dropout, num_heads, num_heads // num_kv_heads, most_keys, *_strides(q, k, v))
    rows = [x.stride(0) for x in (q_grad, k_grad, v_grad)]
    options = {"causal": causal, "drops": threshold < STEPS, **sizes}
    whole = _is_whole(sizes, most_queries, most_keys)
    grid = len(blocks), num_kv_heads, -(-most_keys // sizes["key_tile"])
    gradients = q_grad, k_grad, v_grad
    _kernels().attention_backward_keys[grid](*given, *gradients, blocks, seed, *rest, *rows, whole=whole, **options)
    if not whole:
        grid = len(blocks), num_heads, -(-most_queries // sizes["query_tile"])
        _kernels().attention_backward_queries[grid](*given, q_grad, blocks, seed, *rest, rows[0], **options)
    for x, column in zip(grads, (_QUERIES, _KEYS, _KEYS), strict=False):
        _clear(x, blocks, column)
    return grads


@attention_backward.register_fake
def _(
    grad: Tensor, heads: list[Tensor], out: Tensor, totals: Tensor, seed: Tensor, blocks: Tensor, num_heads: int,
    most_queries: int, most_keys: int, causal: bool, p: float, scale: float,
) -> list[Tensor]:  # fmt: skip
    return [x.new_empty(x.shape) for x in heads]


def _set_up(ctx, inputs: tuple, output: tuple) -> None:
    heads, blocks, *ctx.rest = inputs
    ctx.save_for_backward(*output, blocks, *heads)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, grad: Tensor, *_: Tensor) -> tuple[list[Tensor] | None, ...]:
    out, totals, seed, blocks, *heads = ctx.saved_tensors
    return attention_backward(grad, heads, out, totals, seed, blocks, *ctx.rest), *[None] * 7


attention.register_autograd(_backward, setup_context=_set_up)
