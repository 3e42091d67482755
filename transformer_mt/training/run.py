"""From a config to a trained run: a fresh start, or going on from the newest checkpoint."""

import os
from dataclasses import dataclass

import torch

from transformer_mt.config.files import replace_file
from transformer_mt.config.loading import dump_config, load_config
from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.encoding import load_tokenizers, save_tokenizers
from transformer_mt.data.preparation import PreparedData, prepare_data, report_lines
from transformer_mt.decoding.checkpoint import STATE, build_model
from transformer_mt.errors import UserError
from transformer_mt.machine.determinism import be_deterministic
from transformer_mt.machine.device import choose_device, choose_precision
from transformer_mt.machine.memory import is_out_of_memory, keep_freed_memory
from transformer_mt.training.changes import Changes, Splits, allowed_changes, record_changes, refuse_other_data
from transformer_mt.training.checkpoints import (
    load_checkpoint,
    recover,
    refuse_without_room,
    remove_superfluous,
    set_damaged_aside,
)
from transformer_mt.training.interrupt import stop_on_signals
from transformer_mt.training.lock import sole_trainer
from transformer_mt.training.loop import Trainer
from transformer_mt.training.monitor import Monitor
from transformer_mt.training.state import TrainingState
from transformer_mt.training.updates import Updater


@dataclass(frozen=True)
class Outcome:
    """How a call ended. `reason` is None where a signal ended it; `exit_status` is 0, 130 or 143."""

    run: RunFolder
    step: int
    reason: str | None
    exit_status: int


def start_or_resume(config: RunConfig, run: RunFolder, resume: bool, change_lr: bool = False) -> Outcome:
    """Train the config in the folder `run`, going on from its newest whole checkpoint if `resume` and there is one.

    Raises UserError for a run that exists without `resume`, or is being trained by another process; for a config that
    differs from the run's in what must not change (with `change_lr` the learning rate may); for whatever is wrong with
    the data.
    """
    _refuse_unless_writable(run)
    with sole_trainer(run):
        return _start_or_resume(config, run, resume, change_lr)


def _start_or_resume(config: RunConfig, run: RunFolder, resume: bool, change_lr: bool) -> Outcome:
    if not resume and run.exists():
        raise UserError(
            f"{run.path} exists already. Go on with it by adding `--resume auto`, "
            f"or train beside it with another name, for example name={config.name}_2."
        )
    recover(run)
    if run.checkpoints.exists() and not run.config.exists():
        raise UserError(
            f"{run.config} is gone, though there are checkpoints beside it. Put it back (`tmt config show FILE` prints "
            "what it held), or train under another name."
        )
    if resume:
        print("".join(f"{line}\n" for line in set_damaged_aside(run)), end="")
    going_on = resume and bool(run.steps())
    changes = allowed_changes(load_config(str(run.config.resolve())).config, config, change_lr) if going_on else {}
    return _train(config, run, going_on, changes)


def _refuse_unless_writable(run: RunFolder) -> None:
    """UserError now rather than after the data was prepared."""
    place = next(path for path in (run.path.absolute(), *run.path.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = "cannot be written to" if place.is_dir() else "is a file, not a folder"
        raise UserError(f"{place} {what}, so there is no place for the run. Choose another with --runs or name=NEW.")


def _train(config: RunConfig, run: RunFolder, going_on: bool, changes: Changes) -> Outcome:
    state = TrainingState.read(run.step(run.steps()[-1]) / STATE) if going_on else TrainingState()
    if (reason := state.reason_to_stop(config)) and state.last_validation_step == state.step:
        # A kill may have come between the last save and this.
        remove_superfluous(run, state.best_step, config.training.keep_checkpoints)
        return Outcome(run, state.step, reason, 0)
    data = prepare_data(config, load_tokenizers(run.tokenizers, config.tokenizer) if going_on else None)
    print("\n".join(report_lines(data)))
    updater = _make_updater(config, data, state.precision if going_on else None)
    if going_on:
        load_checkpoint(run, updater.model, updater.optimizer)
        if state.loss_scale is not None:
            updater.scaler.load_state_dict(state.loss_scale)
        if state.memory_limit is not None and state.device == str(updater.device):
            updater.limit.smallest_failed = state.memory_limit
        print(f"going on from step {state.step:,}")
    _compare_with_now(state, updater, data)
    refuse_without_room(run, updater.model, config.training.keep_checkpoints)
    _write_beginnings(config, run, None if going_on else data)
    record_changes(changes, run, state.step)
    monitor = Monitor(run, config, state)
    try:
        # Only here: until now Ctrl-C may stop at once, since whatever was being written is written whole or not at all.
        with stop_on_signals() as request:
            trainer = Trainer(config, data, updater, run, state, monitor, request)
            reason = trainer.train()
        if reason is not None:
            monitor.hparams(trainer.last_metrics)
    except OSError as error:  # what is opened in there is in the folder of the run, the mapped data apart
        raise UserError(
            f"{error.filename or run.path} could not be written: {error.strerror or error}. "
            f"The checkpoints so far are whole; free some space and go on with `tmt train --resume {run.quoted}`."
        ) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(  # an update splits what does not fit; this was a validation, or the first step's moments
            f"The memory of {updater.device} ran out beside an update, in step {state.step + 1:,} or the validation "
            "before it. The checkpoints so far are whole. Lower training.max_tokens or decoding.batch_size, train a "
            "smaller model, or use another training.device."
        ) from error
    finally:
        monitor.close()
    return Outcome(run, state.step, reason, 0 if reason else request.exit_status or 0)


def _make_updater(config: RunConfig, data: PreparedData, precision_before: str | None) -> Updater:
    """A fresh model on the device and in the precision of the config, or in that of the run so far; says which."""
    device, why_device = choose_device(config.training.device)
    place = torch.device(device)
    if config.training.deterministic:  # before anything is computed there
        print(f"deterministic: {be_deterministic(place)}")
    if place.type == "cpu":
        keep_freed_memory()
    if precision_before is not None:
        precision, why_precision = precision_before, "as before"
    else:
        precision, why_precision = choose_precision(config.training.precision, place, config.model.d_model)
    torch.manual_seed(config.seed)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer).to(place)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"model: {num_parameters:,} parameters")
    print(f"device: {device} ({why_device}); precision: {precision} ({why_precision})")
    return Updater(model, config.training, config.seed, precision, place)


def _compare_with_now(state: TrainingState, updater: Updater, data: PreparedData) -> None:
    """Refuse other data than the checkpoint's; say what else can change the last digits; note what holds now."""
    splits: Splits = {
        split.name: {"fingerprint": split.corpus.fingerprint, "num_pairs": split.corpus.num_read}
        for split in (data.train, data.validation)
    }
    now = {
        "device": str(updater.device),
        "precision": updater.precision,
        "num_threads": torch.get_num_threads(),
        "torch_version": str(torch.__version__),
    }
    if state.step > 0:
        refuse_other_data(state.data, splits)
        for name, value in now.items():
            if getattr(state, name) != value:
                print(
                    f"note: {name} was {getattr(state, name)} and is {value}: the numbers may differ in the last digits"
                )
    state.data = splits
    for name, value in now.items():
        setattr(state, name, value)


def _write_beginnings(config: RunConfig, run: RunFolder, data: PreparedData | None) -> None:
    """What makes the folder of a run self-contained, before the first checkpoint: tokenizers, then the config.

    Without data only the config, in which a resumed run may have changed the little that it may.
    """
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        if data is not None:
            save_tokenizers(run.tokenizers, data.src_tokenizer, data.tgt_tokenizer)
        replace_file(run.config, dump_config(config))
    except OSError as error:
        raise UserError(
            f"The run folder {run.path} cannot be written: {error.strerror or error}. Choose another with --runs."
        ) from error
