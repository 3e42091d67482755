"""Encoder and decoder layers: attention and feed-forward, each in a residual connection with a layer norm."""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.cache import LayerCache
from transformer_mt.model.gpu.post_norm import Stream, normed_sum
from transformer_mt.model.option import Option
from transformer_mt.model.parts.attention import MultiHeadAttention, make_attention
from transformer_mt.model.parts.dropout import Dropout
from transformer_mt.model.parts.experts import make_feed_forward
from transformer_mt.model.parts.layer_context import LayerContext
from transformer_mt.model.parts.linears import is_plain
from transformer_mt.model.parts.norms import make_norm
from transformer_mt.model.unpadded import BlockDiagonal

# What a layer is given and gives back: (batch, length, d_model), in a training on a GPU perhaps in 16 bits.
State = TypeVar("State", Tensor, Stream)


class Residual(nn.Module):
    """x, a sublayer f, and the norm that stands before or after their sum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y). Out of training `dropout` returns y itself, which a trace reads there."""
        return self.dropout(y, add_to=x) if self.training else x + self.dropout(y)


class PreNormResidual(Residual):
    """x + f(norm(x)). The sum of a stack's residuals is left unnormalised, so the stack ends in one more norm."""

    @staticmethod
    def final_norm(config: ModelConfig) -> nn.Module:
        return make_norm(config)

    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], last: nn.Linear | None = None) -> Tensor:
        return self.add(x, sublayer(self.norm(x)))


class PostNormResidual(Residual):
    """norm(x + f(x)), as in 2017."""

    @staticmethod
    def final_norm(config: ModelConfig) -> nn.Module:
        return nn.Identity()

    def forward(self, x: State, sublayer: Callable[..., Tensor], last: nn.Linear | None = None) -> State:
        """`last` computes the sublayer's last product, whose bias it leaves out under `biased=False`: one kernel adds
        it here then, and sums its gradient.
        """
        if isinstance(x, Stream):
            assert isinstance(self.norm, nn.LayerNorm)
            if last is None or not is_plain(last):
                return normed_sum(x, sublayer(x.low), None, self.norm, self.dropout.p)
            return normed_sum(x, sublayer(x.low, biased=False), last.bias, self.norm, self.dropout.p)
        return self.norm(self.add(x, sublayer(x)))


RESIDUALS: dict[str, Option[type[PreNormResidual] | type[PostNormResidual]]] = {
    "pre": Option(PreNormResidual, {"pre_norm": True}, huggingface={"model_type": "pegasus"}),
    "post": Option(PostNormResidual, {"pre_norm": False}, huggingface={"model_type": "marian"}),
}


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward: two residual connections.

    Under a causal mask it is the layer of a decoder-only model, whose source is a prefix of the same stream:
    `prefill` and `step` are its cached ways in.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_position].make
        self.self_attn = make_attention(config)
        self.feed_forward = make_feed_forward(config)
        self.self_attn_residual = residual(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: State, context: LayerContext) -> State:
        """x (batch, length, d_model) -> the same shape."""

        def attend(h: Tensor, biased: bool = True) -> Tensor:
            return self.self_attn(h, h, context.mask, context.rotate, biased=biased)

        x = self.self_attn_residual(x, attend, self.self_attn.out_proj)
        return fed_forward(x, self.feed_forward, self.feed_forward_residual, context)

    def prefill(self, x: Tensor, context: LayerContext) -> tuple[Tensor, LayerCache]:
        """`forward` over the prefixes, and a cache that holds their keys and values in its first slots."""
        cache = LayerCache()

        def attend(h: Tensor) -> Tensor:
            q, k, v = self.self_attn.project(h, h)
            k = context.rotate(k)
            cache.write(0, self.self_attn.to_slots(k), self.self_attn.to_slots(v))
            return self.self_attn.attend(context.rotate(q), k, v, context.mask)

        x = self.self_attn_residual(x, attend)
        return self.feed_forward_residual(x, lambda h: self.feed_forward(h, context)), cache

    def step(self, x: Tensor, cache: LayerCache, slot: int, context: LayerContext) -> Tensor:
        """One new position for every row, after the prefix: `DecoderLayer.step` without a memory."""
        x = self.self_attn_residual(x, lambda h: attend_to_past(self.self_attn, h, cache, slot, context))
        return self.feed_forward_residual(x, lambda h: self.feed_forward(h, context))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward: three residual connections."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_position].make
        self.self_attn = make_attention(config)
        self.cross_attn = make_attention(config)
        self.feed_forward = make_feed_forward(config)
        self.self_attn_residual = residual(config)
        self.cross_attn_residual = residual(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: State, context: LayerContext, memory: Tensor, src_mask: Tensor | BlockDiagonal) -> State:
        """x (batch, tgt_len, d_model), memory (batch, src_len, d_model) -> the shape of x."""

        def attend(h: Tensor, biased: bool = True) -> Tensor:
            return self.self_attn(h, h, context.mask, context.rotate, context.is_causal, biased)

        def attend_to_memory(h: Tensor, biased: bool = True) -> Tensor:
            return self.cross_attn(h, memory, src_mask, biased=biased)

        x = self.self_attn_residual(x, attend, self.self_attn.out_proj)
        x = self.cross_attn_residual(x, attend_to_memory, self.cross_attn.out_proj)
        return fed_forward(x, self.feed_forward, self.feed_forward_residual, context)

    def step(self, x: Tensor, cache: LayerCache, slot: int, context: LayerContext, memory_bias: Tensor) -> Tensor:
        """One new position for every row: `forward` at the last position, keys and values taken from the cache.

        x (sentences, rows, d_model) -> the same shape; the new keys and values go into the slots from `slot` on.
        The masks of context and memory are floats (see `masks.as_bias`).
        """
        x = self.self_attn_residual(x, lambda h: attend_to_past(self.self_attn, h, cache, slot, context))
        x = self.cross_attn_residual(x, lambda h: self._attend_to_memory(h, cache, memory_bias))
        return self.feed_forward_residual(x, lambda h: self.feed_forward(h, context))

    def _attend_to_memory(self, h: Tensor, cache: LayerCache, memory_bias: Tensor) -> Tensor:
        assert cache.memory_k is not None
        assert cache.memory_v is not None
        q = self.cross_attn.project_query(h)
        return self.cross_attn.attend_to_slots(q, cache.memory_k, cache.memory_v, memory_bias)


def fed_forward(x: State, feed_forward: nn.Module, residual: Residual, context: LayerContext) -> State:
    """x through the last sublayer of a layer. Only one with a last product, as an `out_proj`, is asked for its bias."""
    last = getattr(feed_forward, "out_proj", None)
    return residual(x, lambda h, **asked: feed_forward(h, context, **asked), last)


def attend_to_past(
    self_attn: MultiHeadAttention, h: Tensor, cache: LayerCache, slot: int, context: LayerContext
) -> Tensor:
    """The self-attention of a step. h (sentences, rows, d_model) -> the same shape; see `DecoderLayer.step`."""
    assert isinstance(context.mask, Tensor)
    q, k, v = self_attn.project(h, h)
    past_k, past_v = cache.write(slot, self_attn.to_slots(context.rotate(k)), self_attn.to_slots(v))
    return self_attn.attend_to_slots(context.rotate(q), past_k, past_v, context.mask)
