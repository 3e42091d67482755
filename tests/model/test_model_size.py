"""The size of a model before it is made, against the one that is made."""

from typing import Any

import pytest
import torch

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.model_size import model_size
from transformer_mt.model.parts.positions import POSITIONS

SMALL = {"d_model": 16, "d_ff": 24, "num_heads": 4, "max_len": 12, "num_encoder_layers": 3, "num_decoder_layers": 4}
KINDS: list[dict[str, Any]] = [
    {},
    {"num_encoder_layers": 1, "num_decoder_layers": 1, "norm_position": "post"},
    {"architecture": "decoder_only", "num_encoder_layers": 0},
    {"positions": "learned", "tie_embeddings": "none"},
    {"positions": "rotary", "num_kv_heads": 2, "bias": False, "norm": "rmsnorm"},
    {"positions": "relative_bias", "num_experts": 3, "activation": "swiglu"},
    {"architecture": "encoder_only", "num_decoder_layers": 0},
    {"architecture": "encoder_only", "num_decoder_layers": 0, "num_encoder_layers": 1, "tie_embeddings": "none"},
    {"architecture": "rnn"},
    {"architecture": "rnn", "rnn": {"cell": "lstm", "attention": "luong_dot", "d_embedding": 10, "d_readout": 10}},
    *({"positions": positions} for positions in POSITIONS),
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_it_is_the_size_of_the_model_that_is_made(options: dict[str, Any]) -> None:
    not_there = ("d_ff", "num_heads") if options.get("architecture") == "rnn" else ()
    small = {key: value for key, value in SMALL.items() if key not in not_there}
    config = ModelConfig.model_validate(small | options)
    vocab_sizes = (37, 37) if config.architecture in ("decoder_only", "encoder_only") else (31, 37)
    model = ARCHITECTURES[config.architecture](config, *vocab_sizes)
    expected = (sum(x.numel() for x in numbers) for numbers in (model.parameters(), model.buffers()))
    before = torch.get_rng_state()
    assert model_size(config, *vocab_sizes) == tuple(expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_would_fill_any_memory_is_counted_at_once() -> None:
    config = ModelConfig.model_validate(SMALL | {"num_decoder_layers": 10**9, "max_len": 10**9})
    size = model_size(config, 31, 37)
    assert size.tables == 2 * 16 * 10**9
    four, five = (model_size(ModelConfig.model_validate(SMALL | {"num_decoder_layers": n}), 31, 37) for n in (4, 5))
    assert size.parameters == four.parameters + (10**9 - 4) * (five.parameters - four.parameters)
