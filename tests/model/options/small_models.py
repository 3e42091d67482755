"""A small config."""

from typing import Any

from transformer_mt.config.sections.model import ModelConfig


def make_config(**changes: Any) -> ModelConfig:
    values = {
        "d_model": 16, "d_ff": 24, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.0,
        "max_len": 32,
    }  # fmt: skip
    return ModelConfig(**{**values, **changes})
