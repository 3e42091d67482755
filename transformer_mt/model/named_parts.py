"""The parts of a model by name: which parameters belong to each, and on which keys of the config their meaning depends.

`training.freeze` and `training.init_from.parts` are lists of these names. A tied weight belongs to every part that has
it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.errors import UserError
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel

# A model with another value of these takes the same weights and means the same by them.
_HARMLESS = {"preset", "dropout", "attention_dropout", "activation_dropout", "src_word_dropout", "tgt_word_dropout",
             "layer_drop", "load_balancing_weight"}  # fmt: skip
_OF_EMBEDDINGS = frozenset({"architecture", "d_model", "tie_embeddings", "rnn.d_embedding"})
_OF_LAYERS = frozenset(ModelConfig.model_fields) - _HARMLESS - {"tie_embeddings"}
_FEW = 8  # entries of the vocabularies of an outline


@dataclass(frozen=True)
class Part:
    """`pattern` matches the beginning of the names of its parameters. `keys` are those of the section `model` on which
    their number, shapes and meaning depend; `rnn` and `patches` stand for all keys of theirs.
    """

    pattern: str
    keys: frozenset[str]


PARTS: dict[str, Part] = {
    "encoder": Part(
        r"encoder\.(?!embedder\.embedding\.)",
        _OF_LAYERS - {"num_decoder_layers", "rnn"} | {"rnn.cell", "rnn.attention", "rnn.d_embedding"},
    ),
    "decoder": Part(r"decoder\.(?!embedder\.embedding\.)", _OF_LAYERS - {"num_encoder_layers", "patches"}),
    "src_embeddings": Part(r"encoder\.embedder\.embedding\.", _OF_EMBEDDINGS | {"patches"}),
    "tgt_embeddings": Part(r"decoder\.embedder\.embedding\.", _OF_EMBEDDINGS),
    "embeddings": Part(r"(en|de)coder\.embedder\.embedding\.", _OF_EMBEDDINGS | {"patches"}),
    "output": Part(r"output\.", _OF_EMBEDDINGS | {"bias", "rnn.d_readout"}),
    "head": Part(r"head\.", frozenset({"architecture", "d_model", "bias", "norm"})),
}
# Parts that architectures have not.
_MISSING = {"decoder_only": {"encoder", "src_embeddings", "head"}, "encoder_only": {"decoder", "tgt_embeddings"}}
_SAME_ENCODER = {"encoder_decoder", "encoder_only"}  # whose encoders, and embeddings of the source, mean the same


def whole(config: ModelConfig) -> list[str]:
    """The parts that together are all of the config's model; a parameter that is not tied belongs to one of them."""
    missing = _MISSING.get(config.architecture, {"head"})
    return [part for part in PARTS if part != "embeddings" and part not in missing]


def keys_of(part: str, here: ModelConfig, there: ModelConfig) -> frozenset[str]:
    """The keys on which it depends whether the part of one model is that of the other."""
    keys = PARTS[part].keys
    if "learned" not in (here.positions, there.positions):
        keys -= {"max_len"}  # no weight knows it
    if part == "src_embeddings" and "all" not in (here.tie_embeddings, there.tie_embeddings):
        keys -= {"tie_embeddings"}
    if here.architecture != there.architecture and {here.architecture, there.architecture} == _SAME_ENCODER:
        if part == "encoder":
            keys -= {"architecture"}
        # An encoder alone has one table, tied or not.
        one_table = next(c for c in (here, there) if c.architecture == "encoder_decoder").tie_embeddings == "all"
        if part == "src_embeddings" or (part == "embeddings" and one_table):
            keys -= {"architecture", "tie_embeddings"}
    return keys


def settings_of(config: ModelConfig) -> dict[str, object]:
    """The values of the keys by their full names, such as rnn.cell. Where null stands for another value, it is that;
    the keys of `rnn` are those of a recurrent network alone.
    """
    patches, rnn = config.patches, config.recurrent
    sections = {"rnn", "patches"}
    found: dict[str, object] = {key: getattr(config, key) for key in ModelConfig.model_fields if key not in sections}
    if config.architecture == "rnn":
        sizes = {"d_embedding": rnn.d_embedding or config.d_model, "d_readout": rnn.d_readout or config.d_model}
        found |= {f"rnn.{key}": value for key, value in {**rnn.model_dump(), **sizes}.items()}
    sizes = {} if patches is None else {**patches.model_dump(), "step": patches.stride}
    return found | {f"patches.{key}": sizes.get(key) for key in PatchesConfig.model_fields}


def outline(config: ModelConfig) -> TranslationModel:
    """The config's model without its numbers, which takes no memory."""
    with torch.device("meta"):
        return ARCHITECTURES[config.architecture](config, _FEW, _FEW)


def belongs(name: str, part: str) -> bool:
    """Whether the parameter of this name belongs to the part."""
    return re.match(PARTS[part].pattern, name) is not None


def parameters_of(model: TranslationModel, parts: Iterable[str], key: str) -> dict[str, nn.Parameter]:
    """The parameters that belong to any of these parts, by the first name of each. UserError, which names `key`, for a
    part that the model has not.
    """
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    found: set[nn.Parameter] = set()
    for part in parts:
        of_part = {p for p in names if any(belongs(name, part) for name in names[p])}
        if not of_part:
            there = ", ".join(whole(model.config))
            raise UserError(
                f"{key} names {part}, which a model of model.architecture: {model.config.architecture} has not. Its "
                f"parts are {there}."
            )
        found |= of_part
    return {name: parameter for name, parameter in model.named_parameters() if parameter in found}


def also_meant(model: TranslationModel, parts: Sequence[str], parameters: dict[str, nn.Parameter]) -> list[str]:
    """The parts that are not among `parts` and have, by tied weights, none but these `parameters` of them."""
    named = {*parts, *(("src_embeddings", "tgt_embeddings") if "embeddings" in parts else ())}
    others = [part for part in whole(model.config) if part not in named]
    return [part for part in others if parameters_of(model, [part], "").keys() <= parameters.keys()]


def freeze(model: TranslationModel, parts: Sequence[str]) -> None:
    """Let no gradient reach these parts. UserError where a part is not there, or where nothing else is."""
    frozen = parameters_of(model, parts, "training.freeze")
    if len(frozen) == len(list(model.parameters())):
        raise UserError("training.freeze names every part of the model, so nothing would be trained. Leave one out.")
    for parameter in frozen.values():
        parameter.requires_grad_(False)


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that an optimizer moves, by name, in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def frozen_line(model: TranslationModel, parts: Sequence[str]) -> str:
    """What to say of a model that has these parts frozen."""
    frozen = parameters_of(model, parts, "training.freeze")
    number, total = (sum(p.numel() for p in group) for group in (frozen.values(), model.parameters()))
    tied = also_meant(model, parts, frozen)
    more = f" (and so {', '.join(tied)}, by model.tie_embeddings: {model.config.tie_embeddings})" if tied else ""
    return f"frozen: {', '.join(parts)}{more}, {number:,} of {total:,} parameters"
