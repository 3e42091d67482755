"""Encoder and decoder layers: attention and feed-forward, each in a residual connection with a layer norm."""

from collections.abc import Callable

from torch import Tensor, nn

from transformer_mt.config.schema import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.cache import LayerCache
from transformer_mt.model.dropout import Dropout

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}
LAYER_NORM_EPS = 1e-5


def make_norm(config: ModelConfig) -> nn.LayerNorm:
    """Biased variance, eps inside the root."""
    return nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS, bias=config.bias)


class Residual(nn.Module):
    """x, a sublayer f, and the norm that stands before or after their sum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)


class PreNormResidual(Residual):
    """x + f(norm(x))."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


class PostNormResidual(Residual):
    """norm(x + f(x)), as in 2017."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


RESIDUALS: dict[str, type[PreNormResidual] | type[PostNormResidual]] = {
    "pre": PreNormResidual,
    "post": PostNormResidual,
}


class FeedForward(nn.Module):
    """Two linear maps with an activation between, position by position (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.in_proj = nn.Linear(config.d_model, config.d_ff, config.bias)
        self.activation = ACTIVATIONS[config.activation]()
        self.dropout = Dropout(config.dropout)
        self.out_proj = nn.Linear(config.d_ff, config.d_model, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> the same shape."""
        return self.out_proj(self.dropout(self.activation(self.in_proj(x))))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward: two residual connections."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_position]
        self.self_attn = MultiHeadAttention(config.d_model, config.num_heads, config.dropout, config.bias)
        self.feed_forward = FeedForward(config)
        self.self_attn_residual = residual(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """x (batch, src_len, d_model), src_mask (batch, 1, 1, src_len) -> the shape of x."""
        x = self.self_attn_residual(x, lambda h: self.self_attn(h, h, src_mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward: three residual connections."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_position]
        self.self_attn = MultiHeadAttention(config.d_model, config.num_heads, config.dropout, config.bias)
        self.cross_attn = MultiHeadAttention(config.d_model, config.num_heads, config.dropout, config.bias)
        self.feed_forward = FeedForward(config)
        self.self_attn_residual = residual(config)
        self.cross_attn_residual = residual(config)
        self.feed_forward_residual = residual(config)

    def forward(self, x: Tensor, tgt_mask: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """x (batch, tgt_len, d_model), memory (batch, src_len, d_model) -> the shape of x."""
        x = self.self_attn_residual(x, lambda h: self.self_attn(h, h, tgt_mask))
        x = self.cross_attn_residual(x, lambda h: self.cross_attn(h, memory, src_mask))
        return self.feed_forward_residual(x, self.feed_forward)

    def step(self, x: Tensor, cache: LayerCache, src_mask: Tensor) -> Tensor:
        """One new position for every row: `forward` at the last position, keys and values taken from the cache.

        x (sentences, rows_per_sentence, d_model) -> the same shape. The rows of a sentence are the queries of one
        cross-attention, so that they share the memory's keys and values.
        """
        x = self.self_attn_residual(x, lambda h: self._attend_to_past(h, cache))
        x = self.cross_attn_residual(x, lambda h: self._attend_to_memory(h, cache, src_mask))
        return self.feed_forward_residual(x, self.feed_forward)

    def _attend_to_past(self, h: Tensor, cache: LayerCache) -> Tensor:
        rows = h.reshape(-1, 1, h.size(-1))
        k, v = cache.append(*self.self_attn.project_key_value(rows))
        return self.self_attn.attend(self.self_attn.project_query(rows), k, v, None).view_as(h)

    def _attend_to_memory(self, h: Tensor, cache: LayerCache, src_mask: Tensor) -> Tensor:
        return self.cross_attn.attend(self.cross_attn.project_query(h), cache.memory_k, cache.memory_v, src_mask)
