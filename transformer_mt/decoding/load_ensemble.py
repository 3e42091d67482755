"""From the folders of runs to one model: of one run, or of several as an ensemble, where their vocabularies agree."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.ensemble import DEFAULT_MODE, MODES, Ensemble
from transformer_mt.decoding.load_model import load_run
from transformer_mt.errors import UserError
from transformer_mt.model.encoder_only import refuse_to_translate
from transformer_mt.model.interface import TranslationModel
from transformer_mt.plurals import counted
from transformer_mt.storage.run_folder import STEP_PREFIX, RunFolder, open_run

Paths = str | Path | Sequence[str | Path]


class Loaded(NamedTuple):
    """What `load_run` gives, of one run or of several; `checkpoints` are the folders taken, each with its run."""

    config: RunConfig
    model: TranslationModel
    src: Tokenizer
    tgt: Tokenizer
    checkpoints: list[tuple[RunFolder, Path]]


def load_models(paths: Paths, checkpoint: str | Sequence[str] | None, mode: str | None) -> Loaded:
    """One model of these runs, in evaluation mode on the CPU. Several checkpoints of one run count as several runs.

    The config is that of the first run with the smallest `model.max_len`. Raises UserError where a run or checkpoint
    cannot be had, where one writes no translation, where directions or vocabularies differ, and for a mode that is none
    or has nothing to combine.
    """
    chosen = _chosen(paths, checkpoint)
    if mode is not None and not (isinstance(mode, str) and mode in MODES):
        raise UserError(f"{mode!r} is not an ensemble mode. Use {' or '.join(MODES)}.")
    if mode is not None and len(chosen) == 1:
        raise UserError(f"The ensemble mode {mode} is for several runs, and there is one. Name more, or give no mode.")
    loaded = [_load(run, choice) for run, choice in chosen]
    return loaded[0] if len(loaded) == 1 else combined(loaded, mode or DEFAULT_MODE)


def combined(loaded: Sequence[Loaded], mode: str) -> Loaded:
    """The ensemble of these models. Raises UserError where their directions or vocabularies differ."""
    first = loaded[0]
    for other in loaded[1:]:
        _refuse_unlike(first, other)
    model = Ensemble([one.model for one in loaded], mode).eval()
    shorter = first.config.model.model_copy(update={"max_len": model.config.max_len})
    config = first.config.model_copy(update={"model": shorter})
    return Loaded(config, model, first.src, first.tgt, [pair for one in loaded for pair in one.checkpoints])


def _load(run: RunFolder, choice: str | None) -> Loaded:
    config, model, src, tgt, checkpoint = load_run(run, choice)
    if not model.translates:
        refuse_to_translate()
    return Loaded(config, model, src, tgt, [(run, checkpoint)])


def _chosen(paths: Paths, checkpoint: str | Sequence[str] | None) -> list[tuple[RunFolder, str | None]]:
    """The runs, each with the choice of its checkpoint. Raises UserError where the numbers of both do not fit."""
    given = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Sequence) else list(paths)
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise UserError(f"A run is the path of its folder, not of the type {type(path).__name__}. Give its path.")
    choices: list[str | None] = [checkpoint]  # pyright: ignore[reportAssignmentType]
    if isinstance(checkpoint, Sequence) and not isinstance(checkpoint, str):
        choices = list(checkpoint)
    for choice in choices:
        if choice is not None and not isinstance(choice, str):
            meant = f"{STEP_PREFIX}{choice if isinstance(choice, int) else 200}"
            raise UserError(
                f"A checkpoint is a name such as 'step_200', not of the type {type(choice).__name__}. Give '{meant}'."
            )
    if not given or not choices:
        raise UserError("An ensemble has at least one run and one checkpoint. Name them.")
    number = max(len(given), len(choices))
    if not {len(given), len(choices)} <= {1, number}:
        raise UserError(
            f"{counted(len(choices), 'checkpoint')} for {counted(len(given), 'run')}: give one checkpoint for all runs "
            "or one for each."
        )
    runs = [open_run(Path(path)) for path in given]
    return list(zip(runs * (number // len(runs)), choices * (number // len(choices)), strict=True))


def _refuse_unlike(first: Loaded, other: Loaded) -> None:
    """Raise UserError where the two translate in other directions, as a run and its reverse with one joint table do, or
    have not the same tokenizers, byte for byte.
    """
    if first.config.data.direction != other.config.data.direction:
        ways = [f"{one.checkpoints[0][0].path} translates {one.config.data.direction}" for one in (first, other)]
        raise UserError(f"{' and '.join(ways)}, so they cannot be an ensemble. Take runs of one direction.")
    for side in ("src", "tgt"):
        one, two = getattr(first, side), getattr(other, side)
        difference = _difference(one, two)
        if difference:
            paths = [loaded.checkpoints[0][0].path for loaded in (first, other)]
            named = {"src": "source", "tgt": "target"}[side]
            raise UserError(
                f"{paths[0]} and {paths[1]} have not the same {named} vocabulary ({difference}), so they cannot be an "
                "ensemble. Take runs with the same tokenizers."
            )


def _difference(one: Tokenizer, other: Tokenizer) -> str:
    """What differs in two tokenizers, the first in the first place; nothing where they are the same."""
    if type(one) is not type(other):
        return " and ".join(type(each).__name__.removesuffix("Tokenizer").lower() for each in (one, other))
    if isinstance(one, Pictures) and isinstance(other, Pictures):
        both = one.settings, other.settings
        return ", ".join(f"{key} {value} and {both[1][key]}" for key, value in both[0].items() if value != both[1][key])
    if one.lowercase != other.lowercase:
        return " and ".join("lower case" if each.lowercase else "any case" for each in (one, other))
    if one.vocab_size != other.vocab_size:
        return f"{one.vocab_size:,} and {other.vocab_size:,} entries"
    for i in range(one.vocab_size):
        entries = [each.backend.id_to_token(i) for each in (one, other)]
        if entries[0] != entries[1]:
            return f"entry {i} is {entries[0]!r} and {entries[1]!r}"
    same = one.backend.to_str() == other.backend.to_str()
    return "" if same else "the same entries, and other rules by which text becomes entries"
