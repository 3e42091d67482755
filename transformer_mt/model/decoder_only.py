"""A decoder-only Transformer as a translator: source and target are one causal stream, x EOS BOS y EOS.

The source is a prefix. In a batch, prefixes have unequal lengths: they stay padded where they are, their padding is
hidden from everything, and positions are counted a row at a time as if it were not there.
"""

import torch
from torch import Tensor, nn

from transformer_mt.config.schema import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.cache import DecoderCache
from transformer_mt.model.context import LayerContext, Routing
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import EncoderLayer
from transformer_mt.model.masks import itself
from transformer_mt.model.stack import Stack, positions_of


class StreamDecoder(Stack):
    """`num_decoder_layers` layers of causal self-attention, with positions for a source and a target."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding) -> None:
        layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, embedding, layers, 2 * config.max_len, causal=True)

    def forward(self, ids: Tensor, at: Tensor, routing: Routing | None = None) -> Tensor:
        """ids (batch, length) at positions (batch, length), padding anywhere -> hidden states, the same and d_model."""
        context = self._stream_context(ids, at, routing)
        x = self.embedder(ids, at)
        for layer in self.layers:
            x = layer(x, context)
        return self.norm(x)

    def start(self, src: Tensor) -> DecoderCache:
        """A cache that holds the keys and values of the prefixes src (batch, src_len)."""
        at = positions_of(src)
        context = self._stream_context(src, at)
        x = self.embedder(src, at)
        caches = []
        for layer in self._stream_layers():
            x, cache = layer.prefill(x, context)
            caches.append(cache)
        return DecoderCache(caches, (src != PAD_ID)[:, None, None])

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """tokens (rows,), the newest of each row -> hidden states (rows, d_model); the cache grows by one."""
        prefix = cache.src_mask[:, 0, 0]  # (sentences, src_len)
        prefix_len = prefix.sum(dim=1, keepdim=True)
        past = torch.arange(cache.length + 1, device=tokens.device)
        key_at = torch.cat((positions_of(prefix).expand_as(prefix), prefix_len + past), dim=1)
        at = prefix_len + cache.length  # (sentences, 1)
        mask = nn.functional.pad(cache.src_mask, (0, cache.length + 1), value=True)
        rows = tokens.size(0) // cache.num_sentences
        row_at = at.repeat_interleave(rows, dim=0)  # (rows, 1)
        context = LayerContext(self.context(mask, at, key_at).mask, self.embedder.positions.rotation(row_at))
        x = self.embedder(tokens[:, None], row_at)
        x = x.view(cache.num_sentences, rows, -1)
        for layer, layer_cache in zip(self._stream_layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, context)
        cache.length += 1
        return self.norm(x).flatten(0, 1)

    def _stream_context(self, ids: Tensor, at: Tensor, routing: Routing | None = None) -> LayerContext:
        real = ids != PAD_ID
        causal = at[:, None, :, None] >= at[:, None, None, :]
        mask = causal & real[:, None, None] | itself(ids.size(1), ids.device)
        return self.context(mask, at, at, real, routing)

    def _stream_layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]


class DecoderOnly(TranslationModel):
    """One stack, one embedding and output projection over one vocabulary."""

    def __init__(self, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__(config)
        assert src_vocab_size == tgt_vocab_size, "one stream needs one vocabulary"
        embedding = nn.Embedding(tgt_vocab_size, config.d_model)
        self.decoder = StreamDecoder(config, embedding)
        tied = config.tie_embeddings != "none"
        self.output = nn.Linear(config.d_model, tgt_vocab_size, bias=config.bias and not tied)
        self._initialise(embedding if tied else None)

    def hidden_states(self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None) -> Tensor:
        src_len = (src != PAD_ID).sum(dim=1, keepdim=True)
        at = torch.cat((positions_of(src).expand_as(src), src_len + positions_of(tgt_in)), dim=1)
        return self.decoder(torch.cat((src, tgt_in), dim=1), at, routing)[:, src.size(1) :]

    def start(self, src: Tensor) -> DecoderCache:
        return self.decoder.start(src)

    def next_hidden_states(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        return self.decoder.step(tokens, cache)

    @property
    def source_attention(self) -> MultiHeadAttention:
        last = self.decoder.layers[-1]
        assert isinstance(last, EncoderLayer)
        return last.self_attn
