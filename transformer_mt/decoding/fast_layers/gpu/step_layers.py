"""Layers of a search on a GPU: fewer and shorter kernels in a step, and numbers of 16 bits from one to the next."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.packed_layers import (
    HalfLinear,
    PackedCrossAttention,
    PackedLinear,
    PackedSelfAttention,
    Packing,
)
from transformer_mt.model.gpu.post_norm import normed_sum_of
from transformer_mt.model.layers import PostNormResidual
from transformer_mt.model.parts.attention import MultiHeadAttention

_KEYS, _A_WARP = 32, 32  # keys that a program looks at together, and how many of a head's numbers a warp has
_MOST_WARPS = 8


def attend_rows(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Attention of few queries, all as `MultiHeadAttention.attend_to_slots` has them -> (sentences, rows, d_model)."""
    from transformer_mt.decoding.fast_layers.gpu import step_kernels  # it imports Triton

    num_sentences, num_heads, num_rows, head_dim = q.shape
    width = max(16, 1 << (head_dim - 1).bit_length())
    q, k, v, bias = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v, bias))
    bias = bias.expand(num_sentences, num_heads, num_rows, k.size(2))
    out = q.new_empty(num_sentences, num_rows, num_heads * head_dim)
    strides = [step for x in (q, k, v, bias) for step in x.stride()[:3]]
    kernel: Any = step_kernels.attend
    with torch.cuda.device_of(q):  # Triton goes by the thread's device
        kernel[(num_sentences * num_rows, num_heads)](
            q, k, v, bias, out, scale, num_rows, k.size(2), num_heads // k.size(1), *strides, head_dim=head_dim,
            width=width, keys=_KEYS, num_warps=min(max(1, width // _A_WARP), _MOST_WARPS),
        )  # fmt: skip
    return out


class LowLinear(HalfLinear):
    """A linear map with numbers of 16 bits before and behind it, and sums in fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), in 16 bits."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class _StepAttention(MultiHeadAttention):
    """What both attentions do in a step."""

    def attend_to_slots(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return self.out_proj(attend_rows(q, k, v, bias, self.scale))


class StepSelfAttention(_StepAttention, PackedSelfAttention):
    """A self-attention that reads each key once in a step."""


class StepCrossAttention(_StepAttention, PackedCrossAttention):
    """A cross-attention that reads each key once in a step."""


class StepPostNorm(nn.Module):
    """norm(x + f(x)) in one kernel behind f."""

    def __init__(self, residual: PostNormResidual) -> None:
        super().__init__()
        self.norm = residual.norm

    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], last: nn.Module | None = None) -> Tensor:
        """The result has the type of the sublayer's."""
        assert isinstance(self.norm, nn.LayerNorm)
        return normed_sum_of(x, sublayer(x), self.norm)


def step_packing(dtype: torch.dtype | None) -> Packing:
    """The packing for a GPU on which Triton works: in fp32, or with products of these 16 bits, whose results have them,
    too, but for the logits.
    """
    output = PackedLinear if dtype is None else partial(HalfLinear, dtype=dtype)
    linear = PackedLinear if dtype is None else partial(LowLinear, dtype=dtype)
    return Packing(linear, StepSelfAttention, StepCrossAttention, post_norm=StepPostNorm, output=output)
