"""From a config to a fresh model; from the folder of a run to its model with weights and tokenizers, for using it."""

from pathlib import Path

import torch

from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.errors import UserError
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.checkpoint_files import SETTINGS, WEIGHTS, find_checkpoint, way_out_of_damage
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import load_weights


def build_model(config: RunConfig, src: Tokenizer, tgt: Tokenizer) -> TranslationModel:
    """A model of the config's shape for these vocabularies, freshly initialised from torch's generator."""
    return ARCHITECTURES[config.model.architecture](config.model, src.vocab_size, tgt.vocab_size)


def load_run(run: RunFolder, choice: str | None) -> tuple[RunConfig, TranslationModel, Tokenizer, Tokenizer, Path]:
    """Config, model in evaluation mode on the CPU, source and target tokenizer, and the checkpoint taken.

    Raises UserError where tokenizers or weights have changed since they were written, or the config no longer describes
    them.
    """
    config, checkpoint = load_trained_config(run, choice)
    src, tgt = load_tokenizers(run.tokenizers, config.tokenizer)
    check_manifest(checkpoint, [WEIGHTS], way_out_of_damage(run, checkpoint))
    model = build_model(config, src, tgt)
    with torch.no_grad():
        load_weights(model, checkpoint / WEIGHTS)
    return config, model.eval(), src, tgt, checkpoint


def load_trained_config(run: RunFolder, choice: str | None) -> tuple[RunConfig, Path]:
    """The config, and the checkpoint taken. UserError where the config no longer describes its weights."""
    config = read_config(run.config)
    checkpoint = find_checkpoint(run, choice)
    _refuse_edited(config, run, checkpoint)
    return config, checkpoint


def _refuse_edited(config: RunConfig, run: RunFolder, checkpoint: Path) -> None:
    """Raise UserError where the config describes model or tokenizer otherwise than when the weights were trained. A
    model of the same shapes would take the weights and translate wrongly.
    """
    path = checkpoint / SETTINGS
    check_manifest(checkpoint, [SETTINGS], way_out_of_damage(run, checkpoint))
    trained = read_config(path)
    for section in ("model", "tokenizer"):
        was, now = (getattr(one, section).model_dump() for one in (trained, config))
        for key, value in was.items():
            if now[key] != value:
                raise UserError(
                    f"{run.config}: {section}.{key} is {now[key]!r}, and the weights were trained with {value!r}. Put "
                    "that back."
                )
