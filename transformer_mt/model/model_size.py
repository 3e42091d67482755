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
    depths = config.num_encoder_layers, config.num_decoder_layers
    least = tuple(min(depth, 1) for depth in depths)
    smallest = _size(config, least, src_vocab_size, tgt_vocab_size)
    total = list(smallest)
    for stack, depth in enumerate(depths):
        if depth > 1:
            deeper = tuple(number + (place == stack) for place, number in enumerate(least))
            with_layer = _size(config, deeper, src_vocab_size, tgt_vocab_size)
            for i, (more, less) in enumerate(zip(with_layer, smallest, strict=True)):
                total[i] += (depth - 1) * (more - less)
    return ModelSize(*total)


def _size(config: ModelConfig, depths: tuple[int, ...], *vocab_sizes: int) -> ModelSize:
    of_depths: dict[str, int] = dict(zip(("num_encoder_layers", "num_decoder_layers"), depths, strict=True))
    with torch.device("meta"):
        model = ARCHITECTURES[config.architecture](config.model_copy(update=of_depths), *vocab_sizes)
    return ModelSize(*(sum(x.numel() for x in numbers) for numbers in (model.parameters(), model.buffers())))
