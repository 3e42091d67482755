"""Translators with random weights, for whatever only looks into a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from marks import slow
from toy import TRANSLATING, all_entries, toy_mapping, toy_pairs

from transformer_mt.config.loading import dump_config, parse_run_config
from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.data.encoding import save_tokenizers
from transformer_mt.data.make_tokenizers import train_tokenizers
from transformer_mt.data.preparation import with_pictures
from transformer_mt.decoding.load_model import build_model
from transformer_mt.decoding.search.options import LengthNorm, SearchOptions, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.model.layers import RESIDUALS
from transformer_mt.model.parts.positions import POSITIONS
from transformer_mt.storage.checkpoint_files import SETTINGS, STATE, WEIGHTS
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import save_tensors, unique_weights

SMALL = {"d_model": 16, "d_ff": 24, "num_heads": 4, "num_decoder_layers": 2, "max_len": 24}
ONE_STREAM = {"architecture": "decoder_only", "num_encoder_layers": 0}
# A model that reads pictures: rows of 8 pixels, so that a sentence of the toy language has about 20 patches.
PICTURES = {**SMALL, "max_len": 40, "num_encoder_layers": 2, "patches": {"height": 8, "width": 6}}
WITHOUT_HEADS = {key: value for key, value in SMALL.items() if key not in ("d_ff", "num_heads")}


def small(model: dict[str, Any]) -> dict[str, Any]:
    """A preset in the smallest sizes."""
    sizes = WITHOUT_HEADS if model.get("architecture") == "rnn" else SMALL
    return {**model, **sizes, "num_encoder_layers": min(3, model["num_encoder_layers"])}


MODELS_BY_NAME: dict[str, dict[str, Any]] = {
    # Those that read patches have no source ids. In these sizes big is base with more dropout, which no search applies.
    **{
        name: small(MODELS[name])
        for name in TRANSLATING
        if MODELS[name]["patches"] is None and name != "transformer-big"
    },
    **{
        f"{positions}, {norm_position}-norm{', one stream' * bool(stream)}": {
            **SMALL, "num_encoder_layers": 3, "positions": positions, "norm_position": norm_position, **stream,
        }
        for positions in POSITIONS
        for norm_position in RESIDUALS
        for stream in ({}, ONE_STREAM)
    },
    "experts alone": {**SMALL, "num_encoder_layers": 3, "num_experts": 4},
    "experts after": {
        **SMALL, "num_encoder_layers": 3, "norm_position": "post", "num_experts": 4, "experts_per_token": 3,
    },
    "lstm without feeding": {
        **WITHOUT_HEADS, "architecture": "rnn", "num_encoder_layers": 2,
        "rnn": {"cell": "lstm", "attention": "luong_dot", "input_feeding": False},
    },
    "short window, one stream": {**SMALL, **ONE_STREAM, "attention_window": 3, "num_kv_heads": 1},
}  # fmt: skip


def model_names(wanted: Callable[[dict[str, Any]], bool] = lambda model: True) -> list[Any]:
    """The names of those models that are `wanted`, to parametrise a test. Of all positions, places of the norm and
    numbers of streams, half of the models have every two together; the other half are slow.
    """
    seldom = set()
    for i, positions in enumerate(POSITIONS):
        for j, norm_position in enumerate(RESIDUALS):
            seldom.add(f"{positions}, {norm_position}-norm{', one stream' * ((i + j) % 2 == 0)}")
    assert seldom <= MODELS_BY_NAME.keys()
    return [slow(name) if name in seldom else name for name, model in MODELS_BY_NAME.items() if wanted(model)]


def make_translator(
    model: dict[str, Any], pairs: list[tuple[str, str]] | None = None, noise: float = 0.1, **sections: dict[str, Any]
) -> Translator:
    """A translator of these pairs, by default the toy language's, that has learned nothing. `noise` times a normal
    number is added to every weight, so that none is left at zero or one; `sections` as in `toy_mapping`.
    """
    drawn = bool(model.get("patches"))
    tokenizer = {"joint": not drawn, **sections.pop("tokenizer", {})}
    if drawn:
        sections["data"] = {"source_as": "picture", **sections.get("data", {})}
    mapping = toy_mapping(Path("."), tokenizer=tokenizer, **sections)
    config = parse_run_config({**mapping, "model": model}, "toy")
    sides = [list(side) for side in zip(*(pairs or toy_pairs(50)), strict=True)]
    src, tgt = with_pictures(config, train_tokenizers(lambda side: [sides[side]], config.tokenizer))
    torch.manual_seed(4)
    network = build_model(config, src, tgt).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return Translator(network, src, tgt, config)


def toy_translator(
    kind: str = "bpe", stream: dict[str, Any] | None = None, max_len: int = 24, **decoding: Any
) -> Translator:
    """Of two stacks or of `stream`, whose tokenizers are of this kind; a comma stands between words, too."""
    size = {"word": 100, "bpe": 320, "unigram": 300}[kind]
    tokenizer = {"kind": kind, "vocab_size": size, **all_entries(kind)}
    pairs = [*toy_pairs(50), ("ten, ten", "diez, diez")]
    model = {"num_encoder_layers": 1, **SMALL, "max_len": max_len, **(stream or {})}
    return make_translator(model, pairs, tokenizer=tokenizer, decoding=decoding)


def rules(
    beam_size: int = 1, n_best: int = 1, norm: LengthNorm | None = None, allow_unk: bool = False
) -> SearchOptions:
    """Rules of a search by themselves; `norm` is none unless it is given."""
    norm = norm or LengthNorm()
    given = {"beam_size": beam_size, "n_best": n_best, "length_norm": norm.kind, "length_penalty": norm.alpha}
    return search_options(DecodingConfig(allow_unk=allow_unk), **given)


def write_run(folder: Path, translator: Translator) -> Path:
    """The folder of a run whose one checkpoint, step_1, has the translator's weights. Returns it."""
    run = RunFolder(folder)
    checkpoint = run.step(1)
    checkpoint.mkdir(parents=True)
    text = dump_config(translator.config)
    for path in (run.config, checkpoint / SETTINGS):
        path.write_text(text, encoding="utf-8")
    save_tokenizers(run.tokenizers, translator.src_tokenizer, translator.tgt_tokenizer)
    save_tensors(unique_weights(translator.model), checkpoint / WEIGHTS)
    (checkpoint / STATE).write_text(json.dumps({"best_step": None}), encoding="utf-8")
    write_manifest(checkpoint, [WEIGHTS, SETTINGS, STATE])
    return folder
