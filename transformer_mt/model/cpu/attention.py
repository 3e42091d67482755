"""Attention in training on a CPU: softmax(Q K^T / sqrt(head_dim)) V with dropout on the weights, forward and back.

torch has no fused kernel with dropout there, and the one without is slow going back: on short sentences, and in bf16 on
all. numba has that of `attention_kernels.py`. Without it every pass is written out here, few of them and in place where
nobody looks any more.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.machine.numba_modules import numba_module
from transformer_mt.model.cpu.dropout import keep_factors
from transformer_mt.model.masks import as_bias
from transformer_mt.model.unpadded import BlockDiagonal

REGISTER = 64  # bytes: torch's softmax over a row that does not fill one goes by single numbers, 15 times as slowly

FUSED_FROM = 32  # keys: without dropout torch's fused kernel is as fast from here on, measured forward and back

KERNELS = "transformer_mt.model.cpu.attention_kernels"


def training_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float) -> Tensor:
    """dropout(attention_weights(q, k, mask, scale), p) @ v. Gradients flow to q, k, v and a float mask.

    q (batch, num_heads, query_len, head_dim), k and v (batch, num_heads, key_len, head_dim), mask as in
    `attention.masked` -> the shape of q. Short rows of keys are filled up with some that no query may see.
    """
    kernels = numba_module(KERNELS)
    if kernels is not None and kernels.takes(q, mask):
        return kernels.attention(q, k, v, mask, p, scale)
    if p == 0 and k.size(2) >= FUSED_FROM and q.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    key_len = max(k.size(2), REGISTER // q.element_size())
    bias = q.new_zeros(1, 1, 1, 1) if mask is None else as_bias(mask).to(q.dtype)
    bias = F.pad(bias.expand(*bias.shape[:-1], k.size(2)), (0, key_len - k.size(2)), value=-torch.inf)
    factors = keep_factors(torch.Size((*q.shape[:3], key_len)), p, q.dtype) if p else None
    return _Attention.apply(q, k, v, bias, factors, scale)


def prepare_attention(dtype: torch.dtype, head_dim: int) -> bool:
    """Compile what `training_attention` needs for such heads, so that no step waits for it; whether there is such."""
    kernels = numba_module(KERNELS)
    return kernels is not None and kernels.takes_heads(dtype, head_dim)


def unpadded_attention(q: Tensor, k: Tensor, v: Tensor, mask: BlockDiagonal, p: float, scale: float) -> Tensor:
    """`training_attention` among unpadded tokens, where `prepare_attention` said yes.

    q (1, num_heads, num_queries, head_dim), k and v (1, num_kv_heads, num_keys, head_dim) -> the shape of q, zeros for
    rows that are no sentence's.
    """
    kernels = numba_module(KERNELS)
    assert kernels is not None
    return kernels.attention(q, k, v, mask, p, scale)


class _Attention(torch.autograd.Function):
    """With P = softmax(S) and D = P * factors: O = D V. Back: dV = D^T dO, dP = dO V^T * factors,
    dS = P * (dP - sum(dP * P)), dQ = dS K * scale, dK = dS^T Q * scale; dS summed is that of what was added to S.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, added: Tensor, factors: Tensor | None, scale: float) -> Tensor:
        """q (batch, num_heads, query_len, head_dim), k and v (batch, num_heads, some, head_dim) -> the shape of q.

        `added` to the scores: broadcastable to (batch, num_heads, query_len, key_len), key_len at least `some`, and
        -inf for all keys from `some` on. `factors` of the weights: (batch, num_heads, query_len, key_len).
        """
        key_len = added.size(-1)
        ctx.key_len, ctx.scale, ctx.added_shape = k.size(2), scale, added.shape
        q_rows, k_rows, v_rows = _rows(q, q.size(2), scale), _rows(k, key_len), _rows(v, key_len)
        scores = torch.bmm(q_rows, k_rows.transpose(1, 2)).view(*q.shape[:3], key_len).add_(added)
        weights = scores.softmax(dim=-1)
        ctx.save_for_backward(q_rows, k_rows, v_rows, weights, factors)
        dropped = weights if factors is None else torch.mul(weights, factors, out=scores)
        return torch.bmm(dropped.flatten(0, 1), v_rows).view(q.shape)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradient of the output, in the shape of q -> those of q, k and v, and of `added` where it is asked for."""
        q_rows, k_rows, v_rows, weights, factors = ctx.saved_tensors
        key_len = ctx.key_len
        grad = grad_outputs[0].reshape(q_rows.shape)
        dropped = weights if factors is None else weights * factors
        grad_v = torch.bmm(dropped.flatten(0, 1).transpose(1, 2), grad)
        grad_weights = torch.bmm(grad, v_rows.transpose(1, 2)).view(weights.shape)
        if factors is not None:
            grad_weights.mul_(factors)
        grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        rows = grad_scores.flatten(0, 1)
        grad_q = torch.bmm(rows, k_rows).mul_(ctx.scale)
        grad_k = torch.bmm(rows.transpose(1, 2), q_rows)
        heads = weights.shape[:2]
        grad_added = grad_scores.sum_to_size(ctx.added_shape) if ctx.needs_input_grad[3] else None
        return (
            grad_q.unflatten(0, heads),
            grad_k.unflatten(0, heads)[:, :, :key_len],
            grad_v.unflatten(0, heads)[:, :, :key_len],
            grad_added,
            None,
            None,
        )


def _rows(x: Tensor, length: int, scale: float = 1.0) -> Tensor:
    """x (batch, num_heads, some, head_dim) * scale, side by side in memory, zeros behind -> (batch * num_heads, length,
    head_dim).
    """
    some = x.size(2)
    rows = x.new_empty(*x.shape[:2], length, x.size(3))
    rows[:, :, some:] = 0
    torch.mul(x, scale, out=rows[:, :, :some])
    return rows.flatten(0, 1)
