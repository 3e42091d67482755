"""The encoder-decoder Transformer (Vaswani et al. 2017).

tokens -> embedding * sqrt(d_model) -> + positions -> dropout -> encoder layers -> memory
tokens -> embedding * sqrt(d_model) -> + positions -> dropout -> decoder layers over memory -> logits
"""

import math

from torch import Tensor, nn

from transformer_mt.config.schema import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.cache import DecoderCache, LayerCache
from transformer_mt.model.dropout import Dropout
from transformer_mt.model.layers import DecoderLayer, EncoderLayer, make_norm
from transformer_mt.model.masks import causal_mask, padding_mask
from transformer_mt.model.positions import POSITIONS

# Pre-norm leaves the sum of its residuals unnormalised, so each stack ends in one more norm; post-norm does not.
FINAL_NORMS = {"pre": make_norm, "post": lambda config: nn.Identity()}


class Embedder(nn.Module):
    """Token ids to vectors: embedding * sqrt(d_model) + positions, then dropout."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.scale = math.sqrt(config.d_model)
        self.positions = POSITIONS[config.positions](config.max_len, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """ids (batch, length), the first at position `start` -> (batch, length, d_model)."""
        return self.dropout(self.positions(self.embedding(ids) * self.scale, start))


class Encoder(nn.Module):
    """Embedding and `num_encoder_layers` layers."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedder = Embedder(config, embedding)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = FINAL_NORMS[config.norm_position](config)

    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """src (batch, src_len), src_mask (batch, 1, 1, src_len) -> memory (batch, src_len, d_model)."""
        x = self.embedder(src)
        for layer in self.layers:
            x = layer(x, src_mask)
        return self.norm(x)


class Decoder(nn.Module):
    """Embedding and `num_decoder_layers` layers."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedder = Embedder(config, embedding)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.norm = FINAL_NORMS[config.norm_position](config)

    def forward(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """tgt_in (batch, tgt_len), memory (batch, src_len, d_model) -> hidden states (batch, tgt_len, d_model)."""
        x = self.embedder(tgt_in)
        tgt_mask = causal_mask(tgt_in.size(1), tgt_in.device)
        for layer in self.layers:
            x = layer(x, tgt_mask, memory, src_mask)
        return self.norm(x)

    def start(self, memory: Tensor, src_mask: Tensor) -> DecoderCache:
        """A cache for one row a sentence; the memory's keys and values are computed here, once."""
        layers = [LayerCache(*layer.cross_attn.project_key_value(memory)) for layer in self._decoder_layers()]
        return DecoderCache(layers, src_mask)

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """tokens (rows,), the newest of each row -> hidden states (rows, d_model); the cache grows by one."""
        x = self.embedder(tokens[:, None], cache.length)
        x = x.view(cache.num_sentences, -1, x.size(-1))  # (sentences, rows_per_sentence, d_model)
        for layer, layer_cache in zip(self._decoder_layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.src_mask)
        cache.length += 1
        return self.norm(x).flatten(0, 1)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class Transformer(nn.Module):
    """Encoder, decoder and output projection.

    Three ways in: `forward` (training: all logits at once), `encode` + `decode` (its halves), and
    `start` + `decode_step` (search: one token at a time over a cache that the caller owns).
    """

    def __init__(self, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        self.config = config
        src_embedding = nn.Embedding(src_vocab_size, config.d_model)
        share_source = config.tie_embeddings == "all"
        assert not share_source or src_vocab_size == tgt_vocab_size, "tying all embeddings needs a joint vocabulary"
        tgt_embedding = src_embedding if share_source else nn.Embedding(tgt_vocab_size, config.d_model)
        self.encoder = Encoder(config, src_embedding)
        self.decoder = Decoder(config, tgt_embedding)
        tied = config.tie_embeddings != "none"
        self.output = nn.Linear(config.d_model, tgt_vocab_size, bias=config.bias and not tied)
        self._initialise()
        if tied:
            self.output.weight = tgt_embedding.weight

    def _initialise(self) -> None:
        """Xavier uniform for matrices, normal of standard deviation d_model^-0.5 for embeddings, zero for biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """src (batch, src_len) -> memory (batch, src_len, d_model), src_mask (batch, 1, 1, src_len)."""
        src_mask = padding_mask(src, PAD_ID)
        return self.encoder(src, src_mask), src_mask

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """tgt_in (batch, tgt_len) -> hidden states (batch, tgt_len, d_model). `output` makes logits of them."""
        return self.decoder(tgt_in, memory, src_mask)

    def hidden_states(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """src (batch, src_len), tgt_in (batch, tgt_len) -> (batch, tgt_len, d_model), before the output projection."""
        return self.decode(tgt_in, *self.encode(src))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """src (batch, src_len), tgt_in (batch, tgt_len) -> logits (batch, tgt_len, tgt_vocab_size)."""
        return self.output(self.hidden_states(src, tgt_in))

    def start(self, src: Tensor) -> DecoderCache:
        """src (batch, src_len) -> the cache of a search that has fed nothing yet, one row a sentence."""
        return self.decoder.start(*self.encode(src))

    def decode_step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """tokens (rows,), the newest of each row -> logits of the next (rows, tgt_vocab_size); the cache grows."""
        assert cache.length < self.config.max_len, "the search went past the model's positions"
        return self.output(self.decoder.step(tokens, cache))
