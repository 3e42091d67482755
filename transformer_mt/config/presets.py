"""Models of the literature as config values, and nothing more: no preset has code of its own.

Each asks for one vocabulary for both sides, but vit-base and vit-small, whose source is a picture. All but llama,
mistral, mixtral and rnn-search tie embeddings, and those of them that are decoder-only read both sides as one stream.
Those that are encoder-only fill in hidden words.
"""

from typing import Any

_BASE = {
    "architecture": "encoder_decoder", "d_model": 512, "d_ff": 2048, "num_heads": 8, "num_kv_heads": None,
    "num_encoder_layers": 6, "num_decoder_layers": 6, "dropout": 0.1, "attention_dropout": None,
    "activation_dropout": None, "src_word_dropout": 0.0, "tgt_word_dropout": 0.0, "layer_drop": 0.0,
    "norm_position": "post", "norm": "layernorm", "activation": "relu",
    "positions": "sinusoidal", "attention_window": None, "scale_attention": True,
    "num_experts": 1, "experts_per_token": 1, "load_balancing_weight": 0.01, "tie_embeddings": "all", "bias": True,
    "rnn": None, "patches": None,
}  # fmt: skip
# A picture of a line, in columns, has no words; decoder as in the encoder.
_VIT = {
    **_BASE, "norm_position": "pre", "activation": "gelu", "positions": "learned", "tie_embeddings": "decoder",
    "patches": {"height": 16, "width": 16, "step": None},
}  # fmt: skip
_LLAMA_PARTS = {
    "norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu", "positions": "rotary", "bias": False,
    "d_ff": 1376,  # a gated layer has three matrices: 8/3 of d_model, rounded up to a multiple of 32
}  # fmt: skip
# All that an RNN has not stands at the default of its key.
_RNN = {
    **_BASE, "architecture": "rnn", "num_encoder_layers": 1, "num_decoder_layers": 1, "norm_position": "pre",
    "rnn": {"cell": "gru", "attention": "bahdanau", "input_feeding": True, "d_embedding": None, "d_readout": None},
}  # fmt: skip
_DECODER_ONLY = {"architecture": "decoder_only", "num_encoder_layers": 0}
_ENCODER_ONLY = {"architecture": "encoder_only", "num_decoder_layers": 0}
# Eight layers of this width and two separate tables of 37,000 words weigh what transformer-base does.
_LLAMA = {**_BASE, **_LLAMA_PARTS, **_DECODER_ONLY, "num_decoder_layers": 8, "tie_embeddings": "none"}
_MISTRAL = {**_LLAMA, "d_ff": 1792, "num_kv_heads": 2, "attention_window": 512}

MODELS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017, table 3
    "transformer-base": _BASE,
    "transformer-big": {**_BASE, "d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
    # Raffel et al. 2020
    "t5-small": {
        **_BASE, "norm_position": "pre", "norm": "rmsnorm", "positions": "relative_bias", "scale_attention": False,
        "bias": False,
    },
    # Lewis et al. 2020
    "bart-base": {
        **_BASE, "d_model": 768, "d_ff": 3072, "num_heads": 12, "activation": "gelu", "positions": "learned",
    },
    # Radford et al. 2019
    "gpt2-small": {
        **_BASE, **_DECODER_ONLY, "d_model": 768, "d_ff": 3072, "num_heads": 12, "num_decoder_layers": 12,
        "norm_position": "pre", "activation": "gelu", "positions": "learned",
    },
    "llama": _LLAMA,  # Touvron et al. 2023, at the size of transformer-base
    "mistral": _MISTRAL,  # Jiang et al. 2023, likewise
    "mixtral": {**_MISTRAL, "num_experts": 8, "experts_per_token": 2},  # Jiang et al. 2024, the same for a token
    "modern": {**_BASE, **_LLAMA_PARTS},
    # Devlin et al. 2019
    "bert-base": {
        **_BASE, **_ENCODER_ONLY, "d_model": 768, "d_ff": 3072, "num_heads": 12, "num_encoder_layers": 12,
        "activation": "gelu", "positions": "learned",
    },
    # the same in small; trains in minutes on a laptop
    "bert-small": {
        **_BASE, **_ENCODER_ONLY, "d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 3,
        "activation": "gelu", "positions": "learned",
    },
    # Bahdanau et al. 2015, appendix A; their two vocabularies are one of the same size here
    "rnn-search": {
        **_RNN, "d_model": 1000, "dropout": 0.0, "tie_embeddings": "none",
        "rnn": {**_RNN["rnn"], "d_embedding": 620, "d_readout": 500},
    },
    # of Luong et al. 2015; trains in minutes on a laptop
    "rnn-small": {
        **_RNN, "d_model": 256, "dropout": 0.2,
        "rnn": {**_RNN["rnn"], "cell": "lstm", "attention": "luong_general"},
    },
    # Dosovitskiy et al. 2021, ViT-B/16, as the encoder; they have no decoder
    "vit-base": {
        **_VIT, "d_model": 768, "d_ff": 3072, "num_heads": 12, "num_encoder_layers": 12,
    },
    # trains in minutes on a laptop
    "vit-small": {
        **_VIT, "d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 3, "num_decoder_layers": 2,
        "positions": "sinusoidal",
    },
}  # fmt: skip


def with_preset(below: dict[str, Any], name: str) -> dict[str, Any]:
    """`below` with its model replaced by the preset's; `max_len` goes with the data and stays.

    A name that is no preset changes nothing, nor does a `tokenizer` that is no map: validation says what is wrong.
    """
    if name not in MODELS:
        return below
    model, tokenizer = below.get("model"), below.get("tokenizer", {})
    kept = {"max_len": model["max_len"]} if isinstance(model, dict) and "max_len" in model else {}
    return {
        **below,
        "model": {**kept, **MODELS[name]},
        "tokenizer": {**tokenizer, "joint": is_joint(name)} if isinstance(tokenizer, dict) else tokenizer,
    }


def is_joint(name: str) -> bool:
    """Whether the preset asks for one vocabulary for both sides: pictures have none."""
    return MODELS[name]["patches"] is None
