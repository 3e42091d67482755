"""Sentences for the user on what ends or hinders a training and is no fault of the program."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.data.batches.stream import StreamError
from transformer_mt.errors import UserError
from transformer_mt.machine.device import machine_name
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.machine.world import World
from transformer_mt.storage.files import way_to_write
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.memory.smaller_parts import NoRoomError
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.updates import Updater


@contextmanager
def explained(updater: Updater, state: TrainingState, run: RunFolder, world: World) -> Iterator[None]:
    """While inside, a full disk, a lack of memory and a broken stream become UserErrors."""
    try:
        yield
    except NoRoomError as error:
        raise _noted(error, updater, run) from error
    except StreamError as error:
        raise world.told_by_one(error) from error
    except OSError as error:  # a file of the run, because the data is mapped already
        place = os.fsdecode(error.filename or run.path)  # TensorBoard's writer names files by bytes
        raise UserError(
            f"{place} could not be written: {error.strerror or error}. The checkpoints so far are whole; "
            f"{way_to_write(error, run.path)} and go on with `tmt train --resume {run.quoted}`."
        ) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(  # not within an update, which would split the batch: a validation, or the first moments
            f"The memory of {updater.device} ran out outside an update, in step {state.step + 1:,} or in the "
            "validation before it. The checkpoints so far are whole. Lower training.max_tokens or decoding.batch_size, "
            "train a smaller model, or use another training.device."
        ) from error


def _noted(error: NoRoomError, updater: Updater, run: RunFolder) -> UserError:
    """Note for the next start which size did not fit, and return the sentence that ends all processes."""
    try:
        updater.limit.write(run.memory_limit, machine_name(updater.device))
    except OSError as failure:
        return UserError(
            f"{error} That could not be noted in {run.memory_limit} ({failure.strerror or failure}); lower "
            "training.max_tokens and train under another name (name=NEW)."
        )
    return UserError(
        f"{error} This is noted: go on with --resume auto, and micro-batches of that size are computed in parts. The "
        "checkpoints are whole."
    )


def nll_not_finite(nll: float, step: int, precision: str) -> UserError:
    """The error of a validation whose nll is not finite."""
    precise = "" if precision == "fp32" else ", or set training.precision: fp32"
    return UserError(
        f"The validation nll is {nll} at step {step:,}, so the training stops; the checkpoints are as "
        f"they were. Lower the learning rate (training.factor or training.lr){precise}."
    )


def go_uncompiled(updater: Updater, wanted: bool | str, reason: str) -> str:
    """Go on without compiling, after it failed. Returns the warning. Raises UserError unless `wanted`, the value of
    training.compile, is auto.
    """
    said = f"The step could not be compiled here: {reason}"
    if wanted != "auto":
        raise UserError(f"{said} Set training.compile: auto, or false.")
    updater.go_uncompiled()
    return f"warning: {said} Training goes on uncompiled, which is slower (training.compile: false)."


def not_saved(error: Exception, run: RunFolder) -> str:
    """The warning that a checkpoint could not be written and the training goes on."""
    reason = str(error)
    if isinstance(error, OSError):
        reason = f"{error.filename or run.path} could not be written: {error.strerror or error}."
    return f"warning: {reason} Training goes on, as training.on_save_error says."


def is_split(what: str, max_tokens: int) -> str:
    """The sentence that micro-batches are computed in parts, and what avoids it."""
    return (
        f"memory: {what} does not fit, so it is computed in parts, and so is every micro-batch of that size: the same "
        f"gradient, every pair, less speed. Lower training.max_tokens ({max_tokens:,}) to avoid it."
    )


def shared_out(max_tokens: int, grad_accum: int, num_processes: int) -> str:
    """The sentence that says what `max_tokens: auto` came to."""
    processes = f"{num_processes} processes x " if num_processes > 1 else ""
    return (
        f"training.max_tokens is {max_tokens:,} and training.grad_accum {grad_accum:,}, the largest micro-batches that "
        f"the memory holds: {processes}{grad_accum:,} x {max_tokens:,} positions an update"
    )


def shape_of(split: TrainingSplit, rows: Rows) -> str:
    """The sizes of a micro-batch, in words."""
    src_len, tgt_len = (int(lengths[rows].max()) for lengths in (split.src_lengths, split.tgt_lengths))
    return f"{len(rows):,} sentences x {src_len:,} source and {tgt_len:,} target positions"
