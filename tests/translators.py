"""Translators with random weights, for whatever only looks into a model."""

from pathlib import Path
from typing import Any

import torch
from toy import toy_mapping, toy_pairs

from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.presets import MODELS
from transformer_mt.data.tokenizers import train_tokenizers
from transformer_mt.decoding.checkpoint import build_model
from transformer_mt.decoding.translator import Translator

SMALL = {"d_model": 16, "d_ff": 24, "num_heads": 4, "num_decoder_layers": 2, "max_len": 24}
ONE_STREAM = {"architecture": "decoder_only", "num_encoder_layers": 0}
MODELS_BY_NAME: dict[str, dict[str, Any]] = {
    **{name: {**model, **SMALL} for name, model in MODELS.items()},
    **{
        f"{positions}, {norm_position}-norm{', one stream' * bool(stream)}": {
            **SMALL, "num_encoder_layers": 3, "positions": positions, "norm_position": norm_position, **stream,
        }
        for positions in ("sinusoidal", "learned", "rotary", "relative_bias", "none")
        for norm_position in ("pre", "post")
        for stream in ({}, ONE_STREAM)
    },
    "experts alone": {**SMALL, "num_experts": 4},
    "experts after": {**SMALL, "norm_position": "post", "num_experts": 4, "experts_per_token": 3},
    "short window, one stream": {**SMALL, **ONE_STREAM, "attention_window": 3, "num_kv_heads": 1},
}  # fmt: skip


def make_translator(
    model: dict[str, Any],
    pairs: list[tuple[str, str]] | None = None,
    noise: float = 0.1,
    **sections: dict[str, Any],
) -> Translator:
    """A translator of these pairs, by default the toy language's, that has learned nothing. `noise` times a normal
    number is added to every weight, so that none is left at zero or one; `sections` as in `toy_mapping`.
    """
    tokenizer = {"joint": True, **sections.pop("tokenizer", {})}
    mapping = toy_mapping(Path("."), tokenizer=tokenizer, **sections)
    config = parse_run_config({**mapping, "model": model}, "toy")
    sides = [list(side) for side in zip(*(pairs or toy_pairs(50)), strict=True)]
    src, tgt = train_tokenizers(lambda side: [sides[side]], config.tokenizer)
    torch.manual_seed(4)
    network = build_model(config, src, tgt).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return Translator(network, src, tgt, config)
