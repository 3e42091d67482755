"""The foot of a stack on a GPU, dropout(embedding * scale + positions), in one pass forward and one backward.

Operation by operation each token's vector would be written and read six times before the first layer has it.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_mt.model.gpu.dropout import STEPS, new_seed, threshold_of
from transformer_mt.model.gpu.rows import tile_of


def _kernels() -> Any:
    """`embedding_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import embedding_kernels

    return embedding_kernels


def embedded(
    table: Tensor, ids: Tensor, positions: Tensor | None, at: Tensor, scale: float, p: float, dtype: torch.dtype
) -> Tensor:
    """dropout(table[ids] * scale + positions[at], p) in this type, where Triton works. table (num_words, size), ids and
    at of one shape (...), positions (num_positions, size) -> (..., size). There is no gradient of positions.
    """
    table, ids, at = table.contiguous(), ids.contiguous(), at.contiguous()
    return Embedded.apply(table, ids, positions, at, scale, threshold_of(p), dtype)


class Embedded(torch.autograd.Function):
    """`embedded`. What it gives is no view, for which torch.compile would make graphs of their own."""

    @staticmethod
    def forward(
        ctx, table: Tensor, ids: Tensor, positions: Tensor | None, at: Tensor, scale: float, threshold: int,
        dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        num_words, size = table.shape
        num_rows = ids.numel()
        seed, sizes = new_seed(table.device, threshold), tile_of(size)
        out = table.new_empty(*ids.shape, size, dtype=dtype)
        _kernels().embed[(-(-num_rows // sizes["height"]),)](
            table, ids, table if positions is None else positions, at, out, seed, threshold, STEPS / max(threshold, 1),
            scale, num_rows, size=size, drops=threshold < STEPS, has_positions=positions is not None, **sizes,
        )  # fmt: skip
        ctx.save_for_backward(ids, seed)
        ctx.num_words, ctx.scale, ctx.threshold, ctx.dtype = num_words, scale, threshold, table.dtype
        return out

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        ids, seed = ctx.saved_tensors
        grad = grad_outputs[0].contiguous()
        size, sizes = grad.size(-1), tile_of(grad.size(-1))
        of_rows = torch.empty_like(grad, dtype=ctx.dtype)
        _kernels().embed_backward[(-(-ids.numel() // sizes["height"]),)](
            grad, of_rows, seed, ctx.threshold, ctx.scale * STEPS / max(ctx.threshold, 1), ids.numel(), size=size,
            drops=ctx.threshold < STEPS, **sizes,
        )  # fmt: skip
        of_table = torch.ops.aten.embedding_dense_backward(of_rows, ids, ctx.num_words, -1, False)
        return of_table, None, None, None, None, None, None
