"""A decoder-only Transformer as a translator: source and target are one causal stream, x EOS BOS y EOS.

The source is a prefix. In a batch, prefixes have unequal lengths. They stay padded where they are; the mask hides their
padding, and positions are counted in each row as if it had none.
"""

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.cache import DecoderCache, SearchCache
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import EncoderLayer
from transformer_mt.model.masks import itself
from transformer_mt.model.parts.attention import Attention
from transformer_mt.model.parts.layer_context import LayerContext, Routing
from transformer_mt.model.parts.word_dropout import WordFactors
from transformer_mt.model.stack import Stack, positions_of


class StreamDecoder(Stack):
    """`num_decoder_layers` layers of causal self-attention, with positions for a source and a target."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding) -> None:
        layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, embedding, layers, 2 * config.max_len, causal=True)

    def forward(self, ids: Tensor, at: Tensor, routing: Routing | None = None, factors: Tensor | None = None) -> Tensor:
        """ids (batch, length), padding anywhere, at positions (batch, length) -> hidden states (batch, length,
        d_model). `factors` (batch, length) are those of the embeddings.
        """
        at = self.within(at)
        context = self._stream_context(ids, at, routing)
        return self.through_all(self.embedder(ids, at, factors), context)

    def start(self, src: Tensor) -> DecoderCache:
        """A cache that holds the keys and values of the prefixes src (batch, src_len)."""
        at = positions_of(src)
        context = self._stream_context(src, at)
        x = self.embedder(src, at)
        caches = []
        for layer in self._stream_layers():
            x, cache = layer.prefill(x, context)
            caches.append(cache)
        cache = DecoderCache.empty(caches, None, len(src), src.device)
        real = src != PAD_ID
        cache.open_slots(at.expand_as(src), real[:, None])
        cache.next_at = real.sum(dim=1, keepdim=True)
        return cache

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """tokens (rows,), the newest of each row -> hidden states (rows, d_model); the cache grows by one."""
        tokens = tokens.view(cache.num_sentences, -1)
        at, slot = cache.feed(tokens.size(1))
        context = self.step_context(cache, at)
        x = self.embedder(tokens, at)  # (sentences, rows, d_model)
        for layer, layer_cache in zip(self._stream_layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, slot, context)
        return self.norm(x).flatten(0, 1)

    def _stream_context(self, ids: Tensor, at: Tensor, routing: Routing | None = None) -> LayerContext:
        real = ids != PAD_ID
        causal = at[:, None, :, None] >= at[:, None, None, :]
        mask = causal & real[:, None, None] | itself(ids.size(1), ids.device)
        return self.context(mask, at, at, real, routing)

    def _stream_layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]


class DecoderOnly(TranslationModel):
    """One stack with one vocabulary, and so one embedding and one output projection."""

    def __init__(self, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__(config)
        assert src_vocab_size == tgt_vocab_size, "one stream needs one vocabulary"
        embedding = nn.Embedding(tgt_vocab_size, config.d_model)
        self.decoder = StreamDecoder(config, embedding)
        tied = config.tie_embeddings != "none"
        self.output = nn.Linear(config.d_model, tgt_vocab_size, bias=config.bias and not tied)
        self._initialise(embedding if tied else None)

    def hidden_states(
        self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None, factors: WordFactors | None = None
    ) -> Tensor:
        src_len = (src != PAD_ID).sum(dim=1, keepdim=True)
        at = torch.cat((positions_of(src).expand_as(src), src_len + positions_of(tgt_in)), dim=1)
        of_stream = None if factors is None else torch.cat(factors, dim=1)
        return self.decoder(torch.cat((src, tgt_in), dim=1), at, routing, of_stream)[:, src.size(1) :]

    def start(self, src: Tensor) -> DecoderCache:
        return self.decoder.start(src)

    def next_hidden_states(self, tokens: Tensor, cache: SearchCache) -> Tensor:
        assert isinstance(cache, DecoderCache)
        return self.decoder.step(tokens, cache)

    @property
    def source_attentions(self) -> list[Attention]:
        return [layer.self_attn for layer in self.decoder.layers if isinstance(layer, EncoderLayer)]
