"""Attention in training on a CPU: softmax(Q K^T / sqrt(head_dim)) V with dropout on the weights, forward and back.

torch has no fused kernel with dropout there. Its kernel without dropout is slow going back: on short sentences, and in
bf16 on all. So numba has the passes of `attention_kernels.py`. Where they do not fit, the formula stands here in torch.
"""

from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.machine.numba_modules import needs_numba
from transformer_mt.model.masks import as_bias
from transformer_mt.model.parts.dropout import dropout
from transformer_mt.model.unpadded import BlockDiagonal

REGISTER = 64  # bytes: torch's softmax over a row that does not fill one goes by single numbers, 15 times as slowly


@needs_numba
def loaded_kernels() -> ModuleType:
    """`attention_kernels.py`."""
    from transformer_mt.model.cpu import attention_kernels

    return attention_kernels


def training_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float) -> Tensor:
    """dropout(attention_weights(q, k, mask, scale), p) @ v. Gradients flow to q, k, v and a float mask.

    q (batch, num_heads, query_len, head_dim), k and v (batch, num_heads, key_len, head_dim), mask as in
    `attention.masked` -> the shape of q.
    """
    kernels = loaded_kernels()
    if kernels is not None and kernels.takes(q, mask):
        return kernels.attention(q, k, v, mask, p, scale)
    k, v, mask = _filled_up(k, v, mask)
    scores = (q * scale) @ k.transpose(-2, -1)
    return dropout((scores if mask is None else scores + as_bias(mask).to(q.dtype)).softmax(dim=-1), p) @ v


def _filled_up(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """k, v and mask with as many keys as fill a register; nobody attends to those that are added."""
    num_keys = k.size(2)
    surplus = max(0, REGISTER // k.element_size() - num_keys)
    if not surplus:
        return k, v, mask
    bias = k.new_zeros(1, 1, 1, num_keys) if mask is None else as_bias(mask).expand(*mask.shape[:-1], num_keys)
    k, v = (F.pad(x, (0, 0, 0, surplus)) for x in (k, v))
    return k, v, F.pad(bias, (0, surplus), value=-torch.inf)


def prepare_attention(dtype: torch.dtype, head_dim: int) -> bool:
    """Compile numba's passes for such heads, so that no step waits for them. Returns whether there are any."""
    kernels = loaded_kernels()
    return kernels is not None and kernels.takes_heads(dtype, head_dim)


def unpadded_attention(q: Tensor, k: Tensor, v: Tensor, mask: BlockDiagonal, p: float, scale: float) -> Tensor:
    """`training_attention` among unpadded tokens, where `prepare_attention` said yes.

    q (1, num_heads, num_queries, head_dim), k and v (1, num_kv_heads, num_keys, head_dim) -> the shape of q, zeros for
    rows that belong to no sentence.
    """
    kernels = loaded_kernels()
    assert kernels is not None
    return kernels.attention(q, k, v, mask, p, scale)
