"""An encoder alone (BERT, Devlin et al. 2019): every position sees all others, and says which token stands there.

tokens -> embedding * sqrt(d_model) -> + positions -> dropout -> encoder layers -> head -> logits

There are no segments here, and no norm of the embeddings: the sum of embedding and position goes into the first layer,
as in every other model.
"""

from typing import ClassVar, NoReturn

from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.errors import UserError
from transformer_mt.model.cache import SearchCache
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import EncoderLayer
from transformer_mt.model.masks import padding_mask
from transformer_mt.model.parts.attention import Attention
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.norms import make_norm
from transformer_mt.model.parts.word_dropout import WordFactors
from transformer_mt.model.stack import positions_of
from transformer_mt.model.transformer import Encoder, unpadded_layers
from transformer_mt.model.unpadded import BlockDiagonal, Tokens, Unpadded


class EncoderOnly(TranslationModel):
    """Encoder, head and output projection. A hidden state is what the head makes of a position of the source, so
    `tgt_in` says only that the batch is one of `data.batches.forms.IN_PLACE`. The output has a bias where
    `bias` is true, tied or not.
    """

    translates: ClassVar[bool] = False

    def __init__(self, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__(config)
        assert src_vocab_size == tgt_vocab_size, "what is read and what is told are one vocabulary"
        embedding = nn.Embedding(src_vocab_size, config.d_model)
        self.encoder = Encoder(config, embedding)
        self.head = PredictionHead(config)
        self.output = nn.Linear(config.d_model, tgt_vocab_size, bias=config.bias)
        self._initialise(embedding if config.tie_embeddings != "none" else None)

    def encode(self, src: Tensor, routing: Routing | None = None, factors: Tensor | None = None) -> Tensor:
        """src (batch, src_len) -> (batch, src_len, d_model), before the head."""
        src_mask = padding_mask(src)
        tokens = Tokens(src, self.encoder.within(positions_of(src)), src_mask[:, 0, 0], factors=factors)
        return self.encoder(tokens, src_mask, routing)

    def hidden_states(
        self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None, factors: WordFactors | None = None
    ) -> Tensor:
        return self.head(self.encode(src, routing, factors and factors.src))

    def real_hidden_states(
        self,
        src: Tensor,
        tgt_in: Tensor,
        real: Tensor,
        routing: Routing | None = None,
        factors: WordFactors | None = None,
        src_real: Tensor | None = None,
    ) -> Tensor:
        """Only the positions that are asked for go through the head."""
        of_src = factors and factors.src
        if not self.training or not self.goes_unpadded():
            return self.head(self.encode(src, routing, of_src).flatten(0, 1).index_select(0, real))
        x = Unpadded.of(src, src_real, of_src)
        memory = self.encoder(x, BlockDiagonal.between(x, x), routing)
        place = (src != PAD_ID).flatten().cumsum(dim=0) - 1  # of each token in the row without padding
        return self.head(memory[0].index_select(0, place[real]))

    def goes_unpadded(self) -> bool:
        return unpadded_layers(self.encoder, self.output.weight, self.config)

    def start(self, src: Tensor) -> NoReturn:
        refuse_to_translate()

    def next_hidden_states(self, tokens: Tensor, cache: SearchCache) -> NoReturn:
        refuse_to_translate()

    @property
    def source_attentions(self) -> list[Attention]:
        return [layer.self_attn for layer in self.encoder.layers if isinstance(layer, EncoderLayer)]


class PredictionHead(nn.Module):
    """norm(gelu(dense(x))), whatever the activation of the layers: the head of masked words."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.activation = nn.GELU()
        self.norm = make_norm(config)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d_model) -> the same shape."""
        # Under autocast the linear map returns fewer digits than x has, of which torch's RMSNorm warns.
        return self.norm(self.activation(self.dense(x)).to(x.dtype))


def refuse_to_translate() -> NoReturn:
    """Raise UserError: there is no decoder that would write anything."""
    raise UserError(
        "model.architecture is encoder_only, which fills in hidden words and writes no translation. Use `tmt fill`, or "
        "train a translator that begins with this encoder: training.init_from: {run: FOLDER, parts: [encoder]}."
    )
