"""The number of parameters of a model, known before any of it is made."""

from typing import NamedTuple

import torch

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.architectures import ARCHITECTURES


class ModelSize(NamedTuple):
    """How many numbers are trained, and how many stand in tables that are not."""

    parameters: int
    tables: int


def model_size(config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> ModelSize:
    """The size of the config's model for these vocabularies. This takes no memory, and no more time for more layers:
    the layers of a stack are all alike, so two depths tell the size of one layer.
    """
    least, deeper = min(config.num_encoder_layers, 1), config.num_encoder_layers > 0
    smallest = _size(config, (least, 1), src_vocab_size, tgt_vocab_size)
    with_decoder_layer = _size(config, (least, 2), src_vocab_size, tgt_vocab_size)
    with_encoder_layer = _size(config, (2, 1), src_vocab_size, tgt_vocab_size) if deeper else smallest
    return ModelSize(
        *(
            of_smallest
            + (config.num_encoder_layers - least) * (of_encoder - of_smallest)
            + (config.num_decoder_layers - 1) * (of_decoder - of_smallest)
            for of_smallest, of_encoder, of_decoder in zip(
                smallest, with_encoder_layer, with_decoder_layer, strict=True
            )
        )
    )


def _size(config: ModelConfig, depths: tuple[int, int], *vocab_sizes: int) -> ModelSize:
    of_depths: dict[str, int] = dict(zip(("num_encoder_layers", "num_decoder_layers"), depths, strict=True))
    with torch.device("meta"):
        model = ARCHITECTURES[config.architecture](config.model_copy(update=of_depths), *vocab_sizes)
    return ModelSize(*(sum(x.numel() for x in numbers) for numbers in (model.parameters(), model.buffers())))
