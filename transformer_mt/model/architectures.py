"""Which networks there are, by the config's name for them."""

from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.encoder_only import EncoderOnly
from transformer_mt.model.recurrent.rnn import Rnn
from transformer_mt.model.transformer import Transformer

ARCHITECTURES: dict[str, type[Transformer] | type[DecoderOnly] | type[EncoderOnly] | type[Rnn]] = {
    "encoder_decoder": Transformer,
    "decoder_only": DecoderOnly,
    "encoder_only": EncoderOnly,
    "rnn": Rnn,
}
