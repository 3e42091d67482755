"""Multi-head attention (Vaswani et al. 2017, section 3.2)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.errors import UserError
from transformer_mt.model.dropout import dropout


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(head_dim)), which the fused kernel computes but does not return.

    q (batch, num_heads, query_len, head_dim), k (batch, num_heads, key_len, head_dim), mask boolean and
    broadcastable to the result, True = may attend -> (batch, num_heads, query_len, key_len); rows sum to 1.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1)


class MultiHeadAttention(nn.Module):
    """Heads of size d_model / num_heads side by side, concatenated, then `out_proj`.

    The projections are public so that a caller may keep keys and values (a decoder's cache) or look at the
    weights (pictures and traces).
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        if d_model % num_heads:
            raise UserError(
                f"num_heads is {num_heads}, which does not divide d_model {d_model}. Choose a divisor of {d_model}."
            )
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model, bias)
        self.k_proj = nn.Linear(d_model, d_model, bias)
        self.v_proj = nn.Linear(d_model, d_model, bias)
        self.out_proj = nn.Linear(d_model, d_model, bias)

    def project_query(self, x: Tensor) -> Tensor:
        """x (batch, query_len, d_model) -> (batch, num_heads, query_len, head_dim)."""
        return self._split_heads(self.q_proj(x))

    def project_key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (batch, key_len, d_model) -> keys and values, each (batch, num_heads, key_len, head_dim)."""
        return self._split_heads(self.k_proj(x)), self._split_heads(self.v_proj(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Projected heads -> (batch, query_len, d_model). `mask` as in `attention_weights`."""
        dropped = self.dropout if self.training else 0.0
        if dropped and q.device.type == "cpu":  # where torch has no fused kernel with dropout and draws slowly
            heads = dropout(attention_weights(q, k, mask), dropped) @ v
        else:
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropped)
        return self.out_proj(heads.transpose(1, 2).flatten(2))  # (batch, query_len, num_heads * head_dim)

    def forward(self, query: Tensor, key_value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query (batch, query_len, d_model), key_value (batch, key_len, d_model) -> (batch, query_len, d_model)."""
        k, v = self.project_key_value(key_value)
        return self.attend(self.project_query(query), k, v, mask)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (batch, num_heads, length, head_dim)
