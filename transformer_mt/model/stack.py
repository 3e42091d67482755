"""The parts of every stack of layers: embedding, positions, window, final norm."""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.cache import DecoderCache
from transformer_mt.model.gpu.embedding import embedded
from transformer_mt.model.gpu.post_norm import Stream, takes_norm
from transformer_mt.model.layers import RESIDUALS, PostNormResidual, Residual
from transformer_mt.model.masks import as_bias, itself, window_mask
from transformer_mt.model.parts.attention import product_dtype
from transformer_mt.model.parts.dropout import Dropout
from transformer_mt.model.parts.layer_context import LayerContext, Routing
from transformer_mt.model.parts.layer_drop import Skipped, drawn
from transformer_mt.model.parts.linears import is_unwatched
from transformer_mt.model.parts.patches import PatchEmbedding
from transformer_mt.model.parts.positions import POSITIONS, Positions, SinusoidalPositions
from transformer_mt.model.unpadded import BlockDiagonal, Tokens


class Embedder(nn.Module):
    """Token ids to vectors: embedding * sqrt(d_model) + positions, then dropout."""

    def __init__(
        self, config: ModelConfig, embedding: nn.Embedding | PatchEmbedding, max_len: int, causal: bool
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.scale = embedding.scale if isinstance(embedding, PatchEmbedding) else math.sqrt(config.d_model)
        self.positions = POSITIONS[config.positions].make(config, max_len, causal)
        self.dropout = Dropout(config.dropout)

    @property
    def table(self) -> Tensor:
        """The embeddings of the words (vocab_size, d_model); who asks has refused patches."""
        assert isinstance(self.embedding, nn.Embedding)
        return self.embedding.weight

    def forward(self, ids: Tensor, at: Tensor, factors: Tensor | None = None) -> Tensor:
        """ids (batch, length), or patches, at positions (batch or 1, length) -> (batch, length, d_model). `factors`
        (batch, length) are those of the embeddings; positions have none.
        """
        x = self.embedding(ids) * self.scale
        if factors is not None:
            x = x * factors[..., None]
        return self.dropout(self.positions(x, at))

    def by_kernel(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        """`forward` in training on a GPU, the result in this type: in one pass, where its parts are the usual ones."""
        positions = self.positions.table if isinstance(self.positions, SinusoidalPositions) else None
        is_usual = positions is not None or type(self.positions).forward is Positions.forward
        is_usual = is_usual and isinstance(self.embedding, nn.Embedding) and tokens.factors is None
        if not is_usual or not all(map(is_unwatched, self.modules())):
            return self(tokens.ids, tokens.at, tokens.factors).to(dtype)
        return embedded(self.table, tokens.ids, positions, tokens.at, self.scale, self.dropout.p, dtype)


class Stack(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(
        self,
        config: ModelConfig,
        embedding: nn.Embedding | PatchEmbedding,
        layers: nn.ModuleList,
        max_len: int,
        causal: bool,
    ) -> None:
        super().__init__()
        self.window = config.attention_window
        self.max_len = max_len
        self.is_compiled = False  # whether torch.compile has its layers
        self.embedder = Embedder(config, embedding, max_len, causal)
        self.layers = layers
        self.layer_drop = config.layer_drop
        self.norm = RESIDUALS[config.norm_position].make.final_norm(config)

    def context(
        self,
        mask: Tensor | BlockDiagonal | None,
        query_at: Tensor,
        key_at: Tensor,
        real: Tensor | None = None,
        routing: Routing | None = None,
        is_causal: bool = False,
    ) -> LayerContext:
        """The context of the layers. Window and positions are put into the mask here; see `LayerContext`."""
        positions = self.embedder.positions
        if isinstance(mask, BlockDiagonal):
            assert self.goes_unpadded
        else:
            mask = positions.bias(self._within_window(mask, query_at, key_at), query_at, key_at)
        is_causal = is_causal and self.window is None and not positions.add_to_scores
        return LayerContext(mask, positions.rotation(query_at), real, routing, is_causal)

    def through(self, layer: nn.Module, x: Tensor | Stream, *arguments: object) -> Tensor | Stream:
        """The layer's result, x (batch, length, d_model) first among its arguments. In training it may be skipped."""
        if self.training and self.layer_drop and drawn(self.layer_drop):
            assert isinstance(x, Tensor)
            unused = (a for a in arguments if isinstance(a, Tensor) and a.requires_grad)  # the memory of a decoder
            return Skipped.apply(x, *unused, *layer.parameters())
        return layer(x, *arguments)

    def embedded(self, tokens: Tokens, mask: Tensor | BlockDiagonal | None) -> Tensor | Stream:
        """The tokens as the layers are given them: as a stream where one kernel is the end of a sublayer."""
        if not self.training or not self.is_compiled or not isinstance(mask, BlockDiagonal):
            return self.embedder(tokens.ids, tokens.at, tokens.factors)
        residual = next(module for module in self.layers.modules() if isinstance(module, Residual))
        weight = next(self.parameters())
        low = product_dtype(weight)
        if self.layer_drop or not isinstance(residual, PostNormResidual) or not takes_norm(residual.norm, low):
            return self.embedder.by_kernel(tokens, weight.dtype)
        return Stream.begun(self.embedder.by_kernel(tokens, low))

    def through_all(self, state: Tensor | Stream, context: LayerContext, *arguments: object) -> Tensor:
        """What `embedded` gave through all layers and the final norm -> (batch, length, d_model)."""
        for layer in self.layers:
            state = self.through(layer, state, context, *arguments)
        return self.norm(state.low if isinstance(state, Stream) else state)

    @property
    def goes_unpadded(self) -> bool:
        """Whether the mask of unpadded tokens will do: no window, and no bias of the scores."""
        return self.window is None and not self.embedder.positions.add_to_scores

    def within(self, at: Tensor) -> Tensor:
        """Positions (batch or 1, length), none beyond the tables. A compiled batch may have one more column, of
        padding, at a position that no table has (see `training.compiling`). It gets the position of its neighbour.
        """
        return at.clamp(max=self.max_len - 1) if self.is_compiled else at

    def step_context(self, cache: DecoderCache, at: Tensor) -> LayerContext:
        """The context of a step at the positions (sentences or 1, 1) that `cache.feed` gave; its mask is a float."""
        context = self.context(cache.visible[:, None], at, cache.slot_at)
        assert isinstance(context.mask, Tensor)
        return replace(context, mask=as_bias(context.mask))

    def _within_window(self, mask: Tensor | None, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        if self.window is None:
            return mask
        near = window_mask(query_at, key_at, self.window)
        if mask is None:
            return near
        if query_at.size(1) < key_at.size(1):  # a step, whose query is no padding
            return mask & near
        # Padding far from every token would see nothing and turn into nan. So it sees itself.
        return mask & near | itself(query_at.size(1), query_at.device)


def positions_of(ids: Tensor) -> Tensor:
    """ids (batch, length) -> (1, length): 0, 1, …"""
    return torch.arange(ids.size(1), device=ids.device)[None]
