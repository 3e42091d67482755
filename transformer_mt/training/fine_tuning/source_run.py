"""The run that `training.init_from` names: opened, held against the config, and remembered in the new run's folder."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.init_from import OF_SRC_VOCABULARY, OF_TGT_VOCABULARY, InitFromConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.decoding.load_model import load_trained_config
from transformer_mt.errors import UserError
from transformer_mt.model.named_parts import belongs, keys_of, outline, parameters_of, settings_of, whole
from transformer_mt.paths import user_path
from transformer_mt.storage.checkpoint_files import SETTINGS, STATE, WEIGHTS, find_checkpoint
from transformer_mt.storage.manifest import check_manifest, digest
from transformer_mt.storage.origin import Origin, read_origin
from transformer_mt.storage.run_folder import RunFolder, open_run

KEY = "training.init_from"
OTHER_CHECKPOINT = f"Choose another with {KEY}: {{run: …, checkpoint: step_N}}."
# Keys of the tokenizer: those that matter where words are learned, and those that leave its vocabulary as it is.
_VOCABULARY_SIZE = ("vocab_size", "min_frequency")
_OF_TRAINING = ("bpe_dropout", "bpe_dropout_sides")

T = TypeVar("T")


@dataclass(frozen=True)
class SourceRun:
    """`config` is that of the run, `checkpoint` the folder of the weights, and `asked` what this training wants of it.

    `parts` are the parts of the model that are taken: all of them, or those that `asked` names. `origin` is what the
    new run's folder keeps, so that nobody needs this run to know where the weights came from.
    """

    run: RunFolder
    config: RunConfig
    checkpoint: Path
    asked: InitFromConfig
    parts: list[str]
    origin: Origin


def open_source(config: RunConfig, run: RunFolder) -> SourceRun | None:
    """The run that the new run's config begins with, whole and of a model that fits; None where it names none.

    Raises UserError where there is no such run or checkpoint, where a file of it is damaged, where it is `run` itself,
    and, naming keys and shapes, where its model or its tokenizers are others.
    """
    asked = config.training.init_from
    if asked is None:
        return None
    refuse_itself(config, run)
    source = told_by_key(lambda: _opened(config.model, asked))
    if wrong := [*_other_model(config.model, source), *_other_tokenizers(config.tokenizer, source)]:
        raise UserError(f"{KEY}: {' '.join(wrong)} {_way_out(config, source)}")
    _refuse_other_pictures(config.data, source)
    return source


def refuse_itself(config: RunConfig, run: RunFolder) -> None:
    """UserError where the config would have a run begin with its own weights."""
    asked = config.training.init_from
    if asked is not None and os.path.realpath(_folder(asked)) == os.path.realpath(run.path):
        raise UserError(
            f"{KEY} names {run.path}, which is the folder of this very run. Train under another name (name=NEW), or go "
            "on with that run by --resume and without this key."
        )


def _folder(asked: InitFromConfig) -> Path:
    if "\0" in asked.run:
        raise UserError(f"{KEY}: {asked.run!r} holds a NUL character, as no path does. Take it out.")
    return user_path(asked.run)


def told_by_key(opened: Callable[[], T]) -> T:
    """What `opened` returns; a UserError that it raises gets the key before it."""
    try:
        return opened()
    except UserError as error:
        raise UserError(f"{KEY}: {error}") from error


def _opened(model: ModelConfig, asked: InitFromConfig) -> SourceRun:
    run = open_run(_folder(asked))
    if asked.checkpoint in (None, "best"):  # which is the best stands in the state of the newest
        check_manifest(run.step(run.steps()[-1]), [STATE], OTHER_CHECKPOINT)
    checkpoint = find_checkpoint(run, asked.checkpoint)
    check_manifest(checkpoint, [WEIGHTS, SETTINGS], OTHER_CHECKPOINT)
    config, checkpoint = load_trained_config(run, checkpoint.name)
    parts = list(asked.parts or whole(model))
    return SourceRun(run, config, checkpoint, asked, parts, _origin(run, config, checkpoint, asked))


def _origin(run: RunFolder, config: RunConfig, checkpoint: Path, asked: InitFromConfig) -> Origin:
    return Origin(
        name=config.name,
        run=str(run.path.resolve()),
        checkpoint=checkpoint.name,
        weights=digest(checkpoint / WEIGHTS),
        parts=None if asked.parts is None else list(asked.parts),
        vocabulary=asked.vocabulary,
        trained_on=[source.description for source in sources_of(config.data.train, config.data)],
        before=read_origin(run.origin),
    )


def _other_model(here: ModelConfig, source: SourceRun) -> list[str]:
    """The first part that is another in the run's model, told: its keys, and a weight whose shape shows it."""
    there, path = source.config.model, source.run.path
    model = outline(here)
    parameters_of(model, source.parts, f"{KEY}.parts")  # refuses a part that this model has not
    models = (model, outline(there))
    now_is, it_was = settings_of(here), settings_of(there)
    shapes = [{name: tuple(p.shape) for name, p in m.named_parameters(remove_duplicate=False)} for m in models]
    for part in source.parts:
        if not (keys := differing_keys(part, here, there)):
            continue
        names = [name for name in shapes[0] | shapes[1] if belongs(name, part)]
        told = ", ".join(f"model.{key} is {now_is[key]!r} and was {it_was[key]!r}" for key in keys)
        pairs = ((name, *(side.get(name, "missing") for side in shapes)) for name in names)
        other = next((f"so that {name} is {now} here and {was} there" for name, now, was in pairs if now != was), "")
        shown = other or "by which the same weights mean something else"
        return [f"the part {part} of {path} does not fit this config: {told}, {shown}."]
    return []


def differing_keys(part: str, here: ModelConfig, there: ModelConfig) -> list[str]:
    """The keys by which this part of one model is another than that of the other, of those that both have."""
    keys, settings = keys_of(part, here, there), [settings_of(one) for one in (here, there)]
    both = [key for key in settings[0] if key in settings[1] and not keys.isdisjoint({key, key.partition(".")[0]})]
    return [key for key in both if settings[0][key] != settings[1][key]]


def _refuse_other_pictures(here: DataConfig, source: SourceRun) -> None:
    """UserError where the source's tokenizer is kept, and the source is drawn in one of both, or in another font."""
    there = source.config.data
    for key in ("source_as", "font"):
        now, was = getattr(here, key), getattr(there, key)
        if source.asked.keeps_src and now != was:
            raise UserError(
                f"{KEY} keeps how {source.run.path} reads the source: data.{key} is {now} and was {was}. Put that "
                f"back, or take parts of the target alone, with {KEY}.vocabulary: new."
            )


def _other_tokenizers(here: TokenizerConfig, source: SourceRun) -> list[str]:
    """The keys by which the config asks for other tokenizers than those that are kept, told."""
    if not (source.asked.keeps_src or source.asked.keeps_tgt):
        return []
    there = source.config.tokenizer
    keys = _keys_of_tokenizers(here, source)
    told = ", ".join(f"tokenizer.{key} is {getattr(here, key)!r} and was {getattr(there, key)!r}" for key in keys)
    return [f"the tokenizers of {source.run.path} are kept, and this config asks for others: {told}."] if keys else []


def _keys_of_tokenizers(here: TokenizerConfig, source: SourceRun) -> list[str]:
    """The keys by which the config describes other tokenizers than the run has."""
    there = source.config.tokenizer
    free = _OF_TRAINING if source.asked.vocabulary == "keep" else (*_OF_TRAINING, *_VOCABULARY_SIZE)
    keys = [
        key for key in TokenizerConfig.model_fields if key not in free and getattr(here, key) != getattr(there, key)
    ]
    if here.masks < there.masks:  # the entries are there, and text like them is text again
        keys.remove("masks")
    return keys


def _way_out(here: RunConfig, source: SourceRun) -> str:
    """The old values, or the parts that fit without them; where the tokenizers are others, with new ones."""
    path, others = source.run.path, _keys_of_tokenizers(here.tokenizer, source)
    fitting = [part for part in source.parts if not differing_keys(part, here.model, source.config.model)]
    words = here.tokenizer.kind == "word" and set(others) <= set(_VOCABULARY_SIZE)
    is_wider = words and here.tokenizer.size > source.config.tokenizer.size
    if source.asked.parts is None and fitting == source.parts and is_wider:
        return (
            f"Give these keys the values that they had (extends: {path}/config.yaml does), or add new words behind the "
            f"old ones: {KEY}: {{run: {path}, vocabulary: extend}}."
        )
    new = ""
    if others:
        fitting = [part for part in fitting if part not in OF_SRC_VOCABULARY | OF_TGT_VOCABULARY]
        new = ", vocabulary: new"
    or_fewer = f", or take what fits: {KEY}: {{run: {path}, parts: [{', '.join(fitting)}]{new}}}" if fitting else ""
    return f"Give these keys the values that they had (extends: {path}/config.yaml does){or_fewer}."
