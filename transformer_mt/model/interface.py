"""The methods of every model, on which training, search and pictures rely."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.cache import SearchCache
from transformer_mt.model.parts.attention import Attention, MultiHeadAttention
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.word_dropout import WordFactors


class Held(NamedTuple):
    """About how many numbers a training step keeps for its backward pass: of a position, and of a pair of a source and
    a target position of one sentence.
    """

    of_position: int
    of_pair: int = 0


class TranslationModel(nn.Module, ABC):
    """Sources in, target tokens out, in two ways that agree.

    All at once, for training: `hidden_states(src, tgt_in)`, of which `output` makes logits.
    One token at a time, for search: `start(src)` gives a cache that the caller owns, and `decode_step(tokens, cache)`
    the logits of the next token. `cache.reorder` lets hypotheses multiply, change places and end.

    src (batch, src_len) ends in EOS, tgt_in (batch, tgt_len) begins with BOS; both are padded on the right with PAD,
    and each side has up to `config.max_len` positions. Outputs at padding mean nothing. Under `config.patches` src is
    (batch, src_len, pixels), levels of 0 to 255: PAD and EOS have their id in every pixel, and other patches 4 or more
    (UNK, where no font has a character).
    """

    # Whether it can be searched: what has no decoder writes no translation, and raises UserError where it is asked to.
    translates: ClassVar[bool] = True
    # Whether the cache is a `DecoderCache`, whose memory a captured step of a GPU can use again.
    goes_in_slots: ClassVar[bool] = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.output: nn.Linear

    @staticmethod
    def held(config: ModelConfig) -> Held:
        """What a training step of such a model keeps. Of each layer: inputs, queries, keys, values, norms, masks. The
        fused kernels of attention keep no scores.
        """
        num_layers = max(config.num_encoder_layers, config.num_decoder_layers)
        return Held(num_layers * (10 * config.d_model + 3 * config.d_ff))

    @property
    def d_hidden(self) -> int:
        """The size of a hidden state."""
        return self.config.d_model

    @abstractmethod
    def hidden_states(
        self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None, factors: WordFactors | None = None
    ) -> Tensor:
        """-> (batch, tgt_len, d_hidden), before the output projection. `routing` collects the work of experts;
        `factors` are those of the embeddings.
        """

    def real_hidden_states(
        self,
        src: Tensor,
        tgt_in: Tensor,
        real: Tensor,
        routing: Routing | None = None,
        factors: WordFactors | None = None,
        src_real: Tensor | None = None,
    ) -> Tensor:
        """The hidden states of all positions but padding: `real` (num_tokens,) are their places in tgt_in.flatten() ->
        (num_tokens, d_hidden). `src_real` are the places of the source's tokens, where the caller knows them.
        """
        return self.hidden_states(src, tgt_in, routing, factors).flatten(0, 1).index_select(0, real)

    def goes_unpadded(self) -> bool:
        """Whether the layers see a batch without its padding, in training and under the current autocast. Dropout draws
        nothing for the places of padding then.
        """
        return False

    @abstractmethod
    def start(self, src: Tensor) -> SearchCache:
        """src (batch, src_len) -> the cache of a search that has fed nothing yet, one row a sentence."""

    @abstractmethod
    def next_hidden_states(self, tokens: Tensor, cache: SearchCache) -> Tensor:
        """tokens (rows,), the newest of each row -> (rows, d_hidden); the cache grows by one."""

    @property
    @abstractmethod
    def source_attentions(self) -> list[Attention]:
        """The attention of each layer through which a target position sees the source: (…, tgt_len) x (src_len, …)."""

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """src (batch, src_len), tgt_in (batch, tgt_len) -> logits (batch, tgt_len, tgt_vocab_size)."""
        return self.output(self.hidden_states(src, tgt_in))

    def decode_step(self, tokens: Tensor, cache: SearchCache) -> Tensor:
        """tokens (rows,), the newest of each row -> logits of the next (rows, tgt_vocab_size); the cache grows."""
        assert cache.length < self.config.max_len, "the search went past the model's positions"
        return self.output(self.next_hidden_states(tokens, cache))

    def _initialise(self, tied: nn.Embedding | None) -> None:
        """Xavier uniform for matrices, normal of standard deviation d_model^-0.5 for embeddings, zero for biases.

        `tied` is the embedding whose weight is the output projection's too.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):  # unscaled scores start as large as scaled ones, as T5's do
                with torch.no_grad():
                    module.q_proj.weight.div_(module.scale * math.sqrt(module.head_dim))
        if tied is not None:
            self.output.weight = tied.weight
