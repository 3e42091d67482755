"""Multi-head attention (Vaswani et al. 2017, section 3.2), with grouped queries (Ainslie et al. 2023)."""

import math
from collections.abc import Callable
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.cpu import attention as cpu
from transformer_mt.model.gpu import attention as gpu
from transformer_mt.model.parts.linears import is_plain, product, stacked
from transformer_mt.model.unpadded import BlockDiagonal


def masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores with what may not be attended at -inf: a boolean mask (True = may) hides, a float one is added."""
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def attention_scores(q: Tensor, k: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Q K^T / sqrt(head_dim), -inf where the mask hides a key.

    q (batch, num_heads, query_len, head_dim), k (batch, num_heads, key_len, head_dim), mask broadcastable to the
    result, see `masked`; `scale` instead of 1 / sqrt(head_dim) -> (batch, num_heads, query_len, key_len).
    """
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    return masked(q @ k.transpose(-2, -1) * scale, mask)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(head_dim)), which the fused kernel computes but does not return.

    All as in `attention_scores`; rows sum to 1.
    """
    return attention_scores(q, k, mask, scale).softmax(dim=-1)


def product_dtype(x: Tensor) -> torch.dtype:
    """The type in which a product of x is computed: autocast's, or its own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def lowered(x: Tensor) -> Tensor:
    """x cast as autocast casts it for a product, so that several products share one cast; without autocast x itself."""
    return x.to(product_dtype(x))


def unrotated(heads: Tensor) -> Tensor:
    """The rotation of queries and keys where positions rotate nothing: the heads as they are."""
    return heads


class Attention(nn.Module):
    """A module that weighs keys for queries, whose weights can be had beside its result."""

    def weights_of(self, inputs: tuple) -> Tensor:
        """The weights of a call with these arguments: (batch, num_heads, query_len, key_len)."""
        raise NotImplementedError


class MultiHeadAttention(Attention):
    """Heads of size d_model / num_heads side by side, concatenated, then `out_proj`.

    Keys and values have `num_kv_heads` heads, a divisor of `num_heads`; each serves an equal number of neighbouring
    query heads. The projections are public so that a caller may keep keys and values (a decoder's cache) or look at the
    weights (pictures and traces).
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float,
        bias: bool,
        num_kv_heads: int | None = None,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.head_dim = d_model // num_heads
        self.scale = 1 / math.sqrt(self.head_dim) if scaled else 1.0
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model, bias)
        self.k_proj = nn.Linear(d_model, self.num_kv_heads * self.head_dim, bias)
        self.v_proj = nn.Linear(d_model, self.num_kv_heads * self.head_dim, bias)
        self.out_proj = nn.Linear(d_model, d_model, bias)

    def project(self, query: Tensor, key_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All three projections, as `project_query` and `project_key_value` give them."""
        source = lowered(key_value)
        return self.project_query(source if query is key_value else query), *self.project_key_value(source)

    def project_query(self, x: Tensor) -> Tensor:
        """x (batch, query_len, d_model) -> (batch, num_heads, query_len, head_dim)."""
        return self._split_heads(self.q_proj(x))

    def project_key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (batch, key_len, d_model) -> keys and values, each (batch, num_kv_heads, key_len, head_dim)."""
        return self._split_heads(self.k_proj(x)), self._split_heads(self.v_proj(x))

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | BlockDiagonal | None,
        is_causal: bool = False,
        biased: bool = True,
    ) -> Tensor:
        """Projected heads -> (batch, query_len, d_model). `mask` as in `attention_weights`, or, in training, the mask
        of unpadded tokens. `is_causal`: the mask hides later keys and nothing else. `biased`: see `linears.product`.
        """
        dropped = self.dropout if self.training else 0.0
        if isinstance(mask, BlockDiagonal):
            unpadded = cpu.unpadded_attention if q.device.type == "cpu" else gpu.unpadded_attention
            return self.join_heads(unpadded(q, k, v, mask, dropped, self.scale), biased)
        folded, mask = self._fold_queries(q), self._fold_mask(mask)
        if self.training and q.device.type == "cpu" and not torch.compiler.is_compiling():
            heads = cpu.training_attention(folded, k, v, mask, dropped, self.scale)
        else:
            # A GPU has a faster kernel for is_causal without a mask. Folded queries are not in their order.
            is_causal = is_causal and self.num_kv_heads == self.num_heads
            mask = None if is_causal else mask
            if mask is not None and mask.is_floating_point():
                mask = mask.to(folded.dtype)  # torch wants it
            heads = F.scaled_dot_product_attention(folded, k, v, mask, dropped, is_causal, scale=self.scale)
        return self.join_heads(heads.reshape(q.shape), biased)

    def to_slots(self, heads: Tensor) -> Tensor:
        """How a cache keeps keys or values (sentences, num_kv_heads, length, head_dim): here as they are."""
        return heads

    def attend_to_slots(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """`attend` for a step of a search: few queries, no dropout, and a mask that is a float.

        q (sentences, num_heads, rows, head_dim), k and v as `to_slots` gives them for (sentences, num_kv_heads,
        key_len, head_dim), bias broadcastable to (sentences, num_heads, rows, key_len) -> (sentences, rows, d_model).
        """
        folded, mask = self._fold_queries(q), self._fold_mask(bias)
        assert mask is not None
        if q.device.type == "cpu":  # where the fused kernel takes two to four times as long for few queries
            heads = ((folded * self.scale) @ k.transpose(-2, -1)).add_(mask).softmax(dim=-1) @ v
        else:
            heads = F.scaled_dot_product_attention(folded, k, v, mask, scale=self.scale)
        return self.join_heads(heads.reshape(q.shape))

    def weights(
        self, query: Tensor, key_value: Tensor, mask: Tensor | None, rotate: Callable[[Tensor], Tensor] = unrotated
    ) -> Tensor:
        """The weights that `forward` gives the values: (batch, num_heads, query_len, key_len)."""
        q, (k, _) = rotate(self.project_query(query)), self.project_key_value(key_value)
        k = rotate(k).repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        q, k = (x.float() if x.itemsize == 2 else x for x in (q, k))  # 16 bits would make equal weights of near ones
        return attention_weights(q, k, mask, self.scale)

    def weights_of(self, inputs: tuple) -> Tensor:
        return self.weights(*inputs[:4])  # the mask among these holds window and causality already

    def forward(
        self,
        query: Tensor,
        key_value: Tensor,
        mask: Tensor | BlockDiagonal | None = None,
        rotate: Callable[[Tensor], Tensor] = unrotated,
        is_causal: bool = False,
        biased: bool = True,
    ) -> Tensor:
        """query (batch, query_len, d_model), key_value (batch, key_len, d_model) -> (batch, query_len, d_model).
        `is_causal` and `biased` as in `attend`.
        """
        if self._goes_jointly(mask, query, rotate):
            return self.attend_jointly(query, key_value, mask, biased)
        q, k, v = self.project(query, key_value)
        return self.attend(rotate(q), rotate(k), v, mask, is_causal, biased)

    @property
    def projections(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """What makes queries, keys and values. They are called, unless `attend_jointly` reads their weights."""
        return self.q_proj, self.k_proj, self.v_proj

    def _goes_jointly(
        self, mask: Tensor | BlockDiagonal | None, query: Tensor, rotate: Callable[[Tensor], Tensor]
    ) -> TypeGuard[BlockDiagonal]:
        """Whether `attend_jointly` computes this, which is decided nowhere else: in a training, of unpadded tokens that
        are not on a CPU (see `attend`), and that nothing rotates between product and attention.
        """
        is_unpadded = self.training and isinstance(mask, BlockDiagonal) and query.device.type != "cpu"
        return is_unpadded and rotate is unrotated and all(map(is_plain, self.projections))

    def attend_jointly(self, query: Tensor, key_value: Tensor, mask: BlockDiagonal, biased: bool = True) -> Tensor:
        """`forward` in training on a GPU, with one product for all projections of the same input. Their gradients
        come side by side, too, so that there is one product for the weights and one for the input.
        """
        if query is key_value:
            heads = [self._side_by_side(F.linear(query, *stacked(self.projections)))]
        else:
            pairs = F.linear(key_value, *stacked([self.k_proj, self.v_proj]))
            heads = [self._side_by_side(self.q_proj(query)), self._side_by_side(pairs)]
        mixed = gpu.joint_attention(heads, self.num_heads, mask, self.dropout, self.scale)
        return product(self.out_proj, mixed.flatten(1)[None], biased)

    def join_heads(self, heads: Tensor, biased: bool = True) -> Tensor:
        """(batch, num_heads, query_len, head_dim) -> (batch, query_len, d_model)."""
        return product(self.out_proj, heads.transpose(1, 2).flatten(2), biased)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (batch, heads, length, head_dim)

    def _side_by_side(self, x: Tensor) -> Tensor:
        return x.squeeze(0).unflatten(-1, (-1, self.head_dim))  # (length, heads, head_dim)

    def _fold_queries(self, q: Tensor) -> Tensor:
        """The query heads that share a key head become one head of longer query_len: no key is copied."""
        return q.reshape(q.size(0), self.num_kv_heads, -1, self.head_dim)

    def _fold_mask(self, mask: Tensor | None) -> Tensor | None:
        group = self.num_heads // self.num_kv_heads
        if mask is None or group == 1 or mask.size(1) == mask.size(2) == 1:
            return mask
        if mask.size(1) == 1:
            return mask.repeat(1, 1, group, 1)
        return mask.reshape(mask.size(0), self.num_kv_heads, -1, mask.size(-1))


def make_attention(config: ModelConfig) -> MultiHeadAttention:
    """The config's attention, for any of its three places."""
    dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
    return MultiHeadAttention(
        config.d_model, config.num_heads, dropout, config.bias, config.num_kv_heads, config.scale_attention
    )
