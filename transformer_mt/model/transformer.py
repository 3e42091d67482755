"""The encoder-decoder Transformer (Vaswani et al. 2017).

tokens -> embedding * sqrt(d_model) -> + positions -> dropout -> encoder layers -> memory
tokens -> embedding * sqrt(d_model) -> + positions -> dropout -> decoder layers over memory -> logits
"""

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.cache import DecoderCache, LayerCache, SearchCache, round_up
from transformer_mt.model.cpu.attention import prepare_attention
from transformer_mt.model.gpu.attention import takes_heads
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import DecoderLayer, EncoderLayer
from transformer_mt.model.masks import as_bias, causal_mask, padding_mask
from transformer_mt.model.parts.attention import Attention, lowered, product_dtype
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.patches import PatchEmbedding
from transformer_mt.model.parts.word_dropout import WordFactors
from transformer_mt.model.stack import Stack, positions_of
from transformer_mt.model.unpadded import BlockDiagonal, Tokens, Unpadded


class Encoder(Stack):
    """`num_encoder_layers` layers that see the whole source."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding | PatchEmbedding) -> None:
        layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        super().__init__(config, embedding, layers, config.max_len, causal=False)

    def forward(self, src: Tokens, src_mask: Tensor | BlockDiagonal, routing: Routing | None = None) -> Tensor:
        """src (batch, src_len), its mask (batch, 1, 1, src_len) or the mask of unpadded tokens -> memory
        (batch, src_len, d_model).
        """
        context = self.context(src_mask, src.at, src.at, src.real, routing)
        return self.through_all(self.embedded(src, context.mask), context)


def unpadded_layers(encoder: Encoder, weight: Tensor, config: ModelConfig) -> bool:
    """`TranslationModel.goes_unpadded` of a model with this encoder and weights like this one."""
    if not encoder.goes_unpadded:
        return False
    dtype, head_dim = product_dtype(weight), config.d_model // config.num_heads
    if weight.device.type == "cpu":  # torch.compile cannot look into numba's passes
        return not encoder.is_compiled and prepare_attention(dtype, head_dim)
    return takes_heads(weight.device, dtype, head_dim)


class Decoder(Stack):
    """`num_decoder_layers` layers that see the target so far, and the memory."""

    def __init__(self, config: ModelConfig, embedding: nn.Embedding) -> None:
        layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, embedding, layers, config.max_len, causal=True)

    def forward(
        self,
        tgt_in: Tokens,
        causal: Tensor | BlockDiagonal,
        memory: Tensor,
        src_mask: Tensor | BlockDiagonal,
        routing: Routing | None = None,
    ) -> Tensor:
        """tgt_in (batch, tgt_len), memory (batch, src_len, d_model) -> hidden states (batch, tgt_len, d_model).

        `causal` is a mask that hides later positions and nothing else, since padding comes last; `src_mask` hides the
        padding of the source.
        """
        context = self.context(causal, tgt_in.at, tgt_in.at, tgt_in.real, routing, is_causal=True)
        return self.through_all(self.embedded(tgt_in, context.mask), context, lowered(memory), src_mask)

    def start(self, memory: Tensor, src_mask: Tensor) -> DecoderCache:
        """A cache for one row a sentence; the memory's keys and values are computed here, once."""
        surplus = round_up(memory.size(1)) - memory.size(1)
        layers = []
        for attention in (layer.cross_attn for layer in self._decoder_layers()):
            slots = (attention.to_slots(heads) for heads in attention.project_key_value(memory))
            layers.append(LayerCache(*(F.pad(heads, (0, 0, 0, surplus)).contiguous() for heads in slots)))
        return DecoderCache.empty(layers, as_bias(F.pad(src_mask, (0, surplus))), len(memory), memory.device)

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """tokens (rows,), the newest of each row -> hidden states (rows, d_model); the cache grows by one."""
        assert cache.memory_bias is not None
        tokens = tokens.view(cache.num_sentences, -1)
        at, slot = cache.feed(tokens.size(1))
        context = self.step_context(cache, at)
        x = self.embedder(tokens, at)  # (sentences, rows, d_model)
        for layer, layer_cache in zip(self._decoder_layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, slot, context, cache.memory_bias)
        return self.norm(x).flatten(0, 1)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class Transformer(TranslationModel):
    """Encoder, decoder and output projection. `encode` and `decode` are the halves of `hidden_states`."""

    def __init__(self, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__(config)
        if config.patches is None:
            src_embedding = nn.Embedding(src_vocab_size, config.d_model)
        else:
            src_embedding = PatchEmbedding(config.patches, config.d_model)
        share_source = config.tie_embeddings == "all"
        assert not share_source or src_vocab_size == tgt_vocab_size, "tying all embeddings needs a joint vocabulary"
        if share_source and isinstance(src_embedding, nn.Embedding):
            tgt_embedding = src_embedding
        else:
            tgt_embedding = nn.Embedding(tgt_vocab_size, config.d_model)
        self.encoder = Encoder(config, src_embedding)
        self.decoder = Decoder(config, tgt_embedding)
        tied = config.tie_embeddings != "none"
        self.output = nn.Linear(config.d_model, tgt_vocab_size, bias=config.bias and not tied)
        self._initialise(tgt_embedding if tied else None)

    def encode(
        self, src: Tensor, routing: Routing | None = None, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """src (batch, src_len), or patches (batch, src_len, pixels) -> memory (batch, src_len, d_model), src_mask
        (batch, 1, 1, src_len).
        """
        src_mask = padding_mask(src)
        tokens = Tokens(src, self.encoder.within(positions_of(src)), src_mask[:, 0, 0], factors=factors)
        return self.encoder(tokens, src_mask, routing), src_mask

    def decode(
        self,
        tgt_in: Tensor,
        memory: Tensor,
        src_mask: Tensor,
        routing: Routing | None = None,
        factors: Tensor | None = None,
    ) -> Tensor:
        """tgt_in (batch, tgt_len) -> hidden states (batch, tgt_len, d_model). `output` makes logits of them."""
        tokens = Tokens(tgt_in, self.decoder.within(positions_of(tgt_in)), tgt_in != PAD_ID, factors=factors)
        return self.decoder(tokens, causal_mask(tgt_in.size(1), tgt_in.device), memory, src_mask, routing)

    def hidden_states(
        self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None, factors: WordFactors | None = None
    ) -> Tensor:
        of_src, of_tgt = factors or (None, None)
        return self.decode(tgt_in, *self.encode(src, routing, of_src), routing, of_tgt)

    def real_hidden_states(
        self,
        src: Tensor,
        tgt_in: Tensor,
        real: Tensor,
        routing: Routing | None = None,
        factors: WordFactors | None = None,
        src_real: Tensor | None = None,
    ) -> Tensor:
        """In training without the padding, where `goes_unpadded` says so."""
        if not self.training or not self.goes_unpadded():
            return super().real_hidden_states(src, tgt_in, real, routing, factors)
        of_src, of_tgt = factors or (None, None)
        x, y = Unpadded.of(src, src_real, of_src), Unpadded.of(tgt_in, real, of_tgt)
        return self.unpadded_hidden_states(x, y, routing)[: y.num_tokens]

    def unpadded_hidden_states(self, src: Unpadded, tgt_in: Unpadded, routing: Routing | None = None) -> Tensor:
        """The hidden states of the rows of `tgt_in`, where `goes_unpadded` says yes -> (num_rows, d_model)."""
        memory = self.encoder(src, BlockDiagonal.between(src, src), routing)
        own, others = BlockDiagonal.between(tgt_in, tgt_in, causal=True), BlockDiagonal.between(tgt_in, src)
        return self.decoder(tgt_in, own, memory, others, routing)[0]

    def goes_unpadded(self) -> bool:
        return unpadded_layers(self.encoder, self.output.weight, self.config)

    def start(self, src: Tensor) -> DecoderCache:
        return self.decoder.start(*self.encode(src))

    def next_hidden_states(self, tokens: Tensor, cache: SearchCache) -> Tensor:
        assert isinstance(cache, DecoderCache)
        return self.decoder.step(tokens, cache)

    @property
    def source_attentions(self) -> list[Attention]:
        return [layer.cross_attn for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]
