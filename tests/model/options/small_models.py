"""A small config and random ids."""

from typing import Any

import torch
from torch import Tensor

from transformer_mt.config.sections.model import ModelConfig

VOCAB = 40


def make_config(**changes: Any) -> ModelConfig:
    values = {
        "d_model": 16, "d_ff": 24, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.0,
        "max_len": 32,
    }  # fmt: skip
    return ModelConfig(**{**values, **changes})


def random_ids(*size: int, seed: int = 1) -> Tensor:
    return torch.randint(4, VOCAB, size, generator=torch.Generator().manual_seed(seed))
