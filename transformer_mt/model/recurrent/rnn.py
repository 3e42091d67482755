"""A recurrent network with attention as a translator: what the Transformer replaced.

tokens -> embedding * sqrt(d_embedding) -> dropout -> both directions of the encoder -> memory
tokens -> embedding * sqrt(d_embedding) -> dropout -> cells, attention to the memory -> readout -> dropout -> logits
"""

from typing import ClassVar

from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.cache import SearchCache
from transformer_mt.model.interface import Held, TranslationModel
from transformer_mt.model.parts.attention import Attention
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.word_dropout import WordFactors
from transformer_mt.model.recurrent.decoder import RNN_ATTENTIONS, RecurrentCache, readout_size
from transformer_mt.model.recurrent.encoder import RecurrentEncoder

_OF_A_CELL = 20  # numbers that are kept of it: its gates, before and after, and its states, in both directions


class Rnn(TranslationModel):
    """Encoder, decoder and output projection."""

    goes_in_slots: ClassVar[bool] = False

    def __init__(self, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__(config)
        kind, d_embedding = RNN_ATTENTIONS[config.recurrent.attention], config.recurrent.d_embedding or config.d_model
        src_embedding = nn.Embedding(src_vocab_size, d_embedding)
        share_source = config.tie_embeddings == "all"
        assert not share_source or src_vocab_size == tgt_vocab_size, "tying all embeddings needs a joint vocabulary"
        tgt_embedding = src_embedding if share_source else nn.Embedding(tgt_vocab_size, d_embedding)
        self.encoder = RecurrentEncoder(config, src_embedding, kind.d_direction(config))
        self.decoder = kind.decoder(config, tgt_embedding, kind.attention, kind.d_direction(config))
        tied = config.tie_embeddings != "none"
        self.output = nn.Linear(self.d_hidden, tgt_vocab_size, bias=config.bias and not tied)
        self._initialise(tgt_embedding if tied else None)

    @staticmethod
    def held(config: ModelConfig) -> Held:
        num_layers = max(config.num_encoder_layers, config.num_decoder_layers)
        of_pair = RNN_ATTENTIONS[config.recurrent.attention].d_pair * config.d_model
        return Held(num_layers * _OF_A_CELL * config.d_model, of_pair)

    @property
    def d_hidden(self) -> int:
        return readout_size(self.config)

    def hidden_states(
        self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None, factors: WordFactors | None = None
    ) -> Tensor:
        of_src, of_tgt = factors or (None, None)
        return self.decoder(tgt_in, self.start(src, of_src), of_tgt)

    def start(self, src: Tensor, factors: Tensor | None = None) -> RecurrentCache:
        """See `TranslationModel`; `factors` (batch, src_len) are those of the embeddings."""
        vectors, last = self.encoder(src, factors)
        return self.decoder.start(vectors, last, (src != PAD_ID)[:, None])

    def next_hidden_states(self, tokens: Tensor, cache: SearchCache) -> Tensor:
        assert isinstance(cache, RecurrentCache)
        return self.decoder.step(tokens, cache)

    @property
    def source_attentions(self) -> list[Attention]:
        return [self.decoder.cross_attn]

    def _initialise(self, tied: nn.Embedding | None) -> None:
        """As in the other models. The recurrent matrix of a gate is orthogonal (Bahdanau et al. 2015, appendix B.1),
        and the forget gates of an LSTM begin open (Jozefowicz et al. 2015).
        """
        super()._initialise(tied)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            elif isinstance(module, nn.RNNBase):
                for name, parameter in module.named_parameters():
                    gates = parameter.detach().split(module.hidden_size)
                    for place, gate in enumerate(gates):
                        _initialise_gate(name, gate, opens=len(gates) == 4 and place == 1)


def _initialise_gate(name: str, gate: Tensor, opens: bool) -> None:
    """`gate` is a gate's part of the parameter of this name."""
    if name.startswith("bias"):
        nn.init.constant_(gate, float(opens and name.startswith("bias_ih")))
    elif name.startswith("weight_hh"):
        nn.init.orthogonal_(gate)
    else:
        nn.init.xavier_uniform_(gate)
