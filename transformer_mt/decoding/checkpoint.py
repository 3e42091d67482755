"""From the folder of a run to a model with its weights: what translating and evaluating read."""

import json
from pathlib import Path

import torch

from transformer_mt.config.loading import load_config
from transformer_mt.config.manifest import check_manifest
from transformer_mt.config.run_folder import STEP_PREFIX, RunFolder
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.weights import load_weights
from transformer_mt.errors import UserError
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel

WEIGHTS = "model.safetensors"
STATE = "state.json"
SETTINGS = "settings.yaml"  # with which the steps up to here were made, whatever becomes of that of the run
AVERAGED_STEPS = "steps.json"


def build_model(config: RunConfig, src: Tokenizer, tgt: Tokenizer) -> TranslationModel:
    """A model of the config's shape for these vocabularies, freshly initialised from torch's generator."""
    return ARCHITECTURES[config.model.architecture](config.model, src.vocab_size, tgt.vocab_size)


def find_checkpoint(run: RunFolder, choice: str | None) -> Path:
    """The folder of `best`, `last`, `average` or `step_N`; None takes best, else last.

    Raises UserError, naming what there is, where there is no such checkpoint.
    """
    steps = run.trained_steps()
    named = {"last": run.step(steps[-1]), **{f"{STEP_PREFIX}{step}": run.step(step) for step in steps}}
    if (run.average / WEIGHTS).is_file():
        named["average"] = run.average
    if choice in named:
        return named[choice]
    best = best_step(run)  # read only now, so that a damaged state stops nobody from naming a step
    if choice is None:
        return named["last"] if best is None else run.step(best)
    if choice == "best" and best is not None:
        return run.step(best)
    hint = ""
    if choice == "average":
        hint = f" Make one with `tmt average {run.quoted} --last {min(5, len(steps))}`."
    there = ", ".join(["best"] * (best is not None) + list(named))
    raise UserError(f"{run.path} has no checkpoint {choice!r}; there are {there}.{hint}")


def stale_average(run: RunFolder, checkpoint: Path) -> str:
    """A note where this checkpoint is an average that the training has since left behind; else nothing."""
    if checkpoint != run.average:
        return ""
    steps = averaged_steps(run)
    if steps[-1] == run.steps()[-1]:
        return ""
    return f"note: the average is of the steps {', '.join(map(str, steps))}; the newest is {run.steps()[-1]}"


def averaged_steps(run: RunFolder) -> list[int]:
    """Which checkpoints the average is of, the newest last. UserError where that cannot be read."""
    way_out = f"Make it again with `tmt average {run.quoted}`."
    check_manifest(run.average, [AVERAGED_STEPS], way_out)
    try:
        steps = [int(step) for step in json.loads((run.average / AVERAGED_STEPS).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{run.average} is damaged ({error}). {way_out}") from error
    if not steps:
        raise UserError(f"{run.average} is damaged (it is of no checkpoint). {way_out}")
    return steps


def best_step(run: RunFolder) -> int | None:
    """The step whose validation was best so far, as the newest checkpoint remembers it; None before any."""
    steps = run.steps()
    if not steps:
        return None
    path = run.step(steps[-1]) / STATE
    check_manifest(path.parent, [STATE], "Choose a checkpoint with --checkpoint step_N.")
    try:
        best = json.loads(path.read_text(encoding="utf-8"))["best_step"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}). Choose a checkpoint with --checkpoint step_N.") from error
    return best if best in steps else None


def load_run(run: RunFolder, choice: str | None) -> tuple[RunConfig, TranslationModel, Tokenizer, Tokenizer, Path]:
    """Config, model in evaluation mode on the CPU, source and target tokenizer, and the checkpoint taken.

    Raises UserError where tokenizers or weights are not those that were written, or the config no longer describes
    them.
    """
    config = load_config(str(run.config.resolve())).config
    checkpoint = find_checkpoint(run, choice)
    _refuse_edited(config, run, checkpoint)
    src, tgt = load_tokenizers(run.tokenizers, config.tokenizer)
    check_manifest(checkpoint, [WEIGHTS])
    model = build_model(config, src, tgt)
    with torch.no_grad():
        load_weights(model, checkpoint / WEIGHTS)
    return config, model.eval(), src, tgt, checkpoint


def _refuse_edited(config: RunConfig, run: RunFolder, checkpoint: Path) -> None:
    """UserError where model or tokenizer are described otherwise than when the weights were trained: what fits the
    weights by its shapes alone would translate, and wrongly.
    """
    path = checkpoint / SETTINGS
    check_manifest(checkpoint, [SETTINGS])
    trained = load_config(str(path.resolve())).config
    for section in ("model", "tokenizer"):
        was, now = (getattr(one, section).model_dump() for one in (trained, config))
        for key, value in was.items():
            if now[key] != value:
                raise UserError(
                    f"{run.config}: {section}.{key} is {now[key]!r}, and the weights were trained with {value!r}. Put "
                    "that back."
                )
