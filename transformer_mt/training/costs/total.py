"""The whole of a training's costs: the minutes to its end, and all of it as lines for a terminal or as plain data."""

import math
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.preparation import TrainingData, prepare_training_data
from transformer_mt.machine.memory import gibibytes
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.costs.known import Epoch, KnownCosts, known_costs
from transformer_mt.training.costs.measuring import Measured, measure
from transformer_mt.training.fine_tuning.kept_tokenizers import kept_tokenizers
from transformer_mt.training.fine_tuning.source_run import open_source
from transformer_mt.training.monitoring.meter import duration
from transformer_mt.training.resuming.checkpoints import megabytes


def costs(config: RunConfig, measured: bool) -> dict[str, Any]:
    """What is known of the config's training, and what a few steps of it show if `measured`. Bytes, minutes and counts
    by name; what nobody can know yet is None. Raises UserError where data or config are wrong.
    """
    data, training = _data(config), config.training
    asked = None if training.max_tokens == "auto" else training.max_tokens
    known = known_costs(config, data, asked, training.grad_accum)
    found: Measured | None = None
    if measured:
        lengths = None if isinstance(data.train, Stream) else data.train
        ratio = 1.0 if lengths is None else float(lengths.tgt_lengths.sum() / lengths.src_lengths.sum())
        found = measure(config, ratio)
        if asked is None:
            known = known_costs(config, data, found.max_tokens, found.micro_batches)
    epoch, steps = known.epoch, steps_to_the_end(config, known)
    return {
        "parameters": known.parameters,
        "trained_parameters": known.trained,
        "checkpoint_bytes": known.checkpoint_bytes,
        "run_bytes": known.checkpoint_bytes * known.checkpoints,
        "steps_an_epoch": epoch and epoch.updates,
        "padding": epoch and epoch.padding,
        "steps": steps,
        "epochs": epoch and steps and epochs_of(config, steps / epoch.updates),
        "training_bytes": found and found.training_bytes,
        "decoding_bytes": found and found.decoding_bytes,
        "seconds_a_step": found and epoch and found.seconds_a_token * epoch.num_tokens / epoch.updates,
        "validation_seconds": found and found.validation_seconds,
        "minutes": found and minutes(config, epoch, steps, found),
        "measured_steps": found and found.steps,
    }


def _data(config: RunConfig) -> TrainingData:
    """The data as a training would prepare it, with the vocabulary of the run that it begins with, if it does."""
    source = open_source(config, RunFolder(Path("runs") / config.name))
    with redirect_stdout(sys.stderr):  # what is kept is said; the costs alone may be read by a program
        return prepare_training_data(config, kept_tokenizers(config, source) if source else None)


def steps_to_the_end(config: RunConfig, known: KnownCosts) -> int | None:
    """None where minutes end the training, or epochs of a length that is not known."""
    limits = [config.training.max_steps]
    if config.training.max_epochs is not None:
        passes = config.data.num_passes(0, config.training.max_epochs) / config.data.num_passes(0, 1)
        limits.append(known.epoch and round(known.epoch.updates * passes))
    there = [limit for limit in limits if limit is not None]
    return min(there) if there else None


def epochs_of(config: RunConfig, first_epochs: float) -> float:
    """How many epochs are as long as so many of the first one. Those of both directions are as long as two others."""
    passes, both = first_epochs * config.data.num_passes(0, 1), config.data.both_directions_epochs
    return passes / 2 if passes < 2 * both else passes - both


def minutes(config: RunConfig, epoch: Epoch | None, steps: int | None, found: Measured) -> float | None:
    """The minutes of steps, validations and checkpoints to the end, if `validation.patience` does not end it before."""
    most = config.training.max_minutes
    if epoch is None or steps is None:
        return most
    validation, training = config.validation, config.training
    if (between := validation.every_steps) is not None:
        num_validations = math.ceil(steps / between)
    else:
        num_epochs = epochs_of(config, steps / epoch.updates)
        num_validations = math.ceil(round(num_epochs, 6) / (validation.every_epochs or 1))
    num_validations += training.average_last is not None
    num_validations += training.init_from is not None and training.init_from.parts is None  # before the first step
    num_saves = steps // training.checkpoint_every_steps
    # What was measured are steps with both passes, where there are any.
    full_steps = training.passes_from(1, steps) / 2 if training.consistency else steps
    seconds = (
        full_steps * found.seconds_a_token * epoch.num_tokens / epoch.updates
        + num_validations * found.validation_seconds
        + found.first_validations_seconds
        + num_saves * found.checkpoint_seconds
    )
    return seconds / 60 if most is None else min(most, seconds / 60)


def told(config: RunConfig, found: dict[str, Any]) -> str:
    """The costs as lines."""
    rows: list[tuple[str, str]] = []
    of_all = "" if found["trained_parameters"] == found["parameters"] else f", {found['trained_parameters']:,} trained"
    rows.append(("parameters", f"{found['parameters']:,}{of_all}"))
    of_run = f"at most {megabytes(found['run_bytes'])} a run"
    rows.append(("checkpoint", f"{megabytes(found['checkpoint_bytes'])}, {of_run}"))
    is_open = config.training.max_tokens == "auto" and found["steps_an_epoch"] is None and not config.data.streaming
    unknown = "not known before max_tokens: auto is tried out" if is_open else "not known of a stream"
    updates, padding, steps = found["steps_an_epoch"], found["padding"], found["steps"]
    rows.append(("steps an epoch", unknown if updates is None else f"{updates:,}"))
    rows.append(("padding", unknown if padding is None else f"{padding:.1%} of all positions"))
    epochs = f", {found['epochs']:.1f} epochs" if found["epochs"] else ""
    open_end = unknown if config.training.max_epochs else "as many as max_minutes allow"
    rows.append(("steps to the end", f"{steps:,}{epochs}" if steps else open_end))
    if found["measured_steps"] is None:
        rows.append(("memory, minutes", "not measured"))
    else:
        of_training = found["training_bytes"]
        rows.append(("memory of training", "not known here" if of_training is None else gibibytes(of_training)))
        if found["decoding_bytes"] is not None:
            rows.append(("memory of decoding", gibibytes(found["decoding_bytes"])))
        if found["seconds_a_step"] is not None:
            passes = " with both passes" if config.training.consistency else ""
            by = f"by {found['measured_steps']} that were measured"
            rows.append(("a step", f"{found['seconds_a_step']:.2f} s{passes}, {by}"))
        rows.append(("a validation", f"{found['validation_seconds']:.1f} s with its checkpoint"))
        most = "at most " if config.validation.patience else "about "
        whole = found["minutes"]
        rows.append(("time to the end", unknown if whole is None else most + duration(whole)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
