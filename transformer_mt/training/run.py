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
from transformer_mt.machine.device import choose_device, choose_precision
from transformer_mt.machine.memory import keep_freed_memory
from transformer_mt.training.checkpoints import load_checkpoint, recover
from transformer_mt.training.interrupt import stop_on_signals
from transformer_mt.training.loop import Trainer
from transformer_mt.training.monitor import Monitor
from transformer_mt.training.state import TrainingState
from transformer_mt.training.updates import Updater

# What a resumed run may change: how long, how often to look, what to keep, how to search.
FREE_TO_CHANGE = ("training.max_steps", "training.max_epochs", "training.max_minutes", "training.log_every_steps",
                  "training.checkpoint_every_steps", "training.keep_checkpoints", "training.device", "validation.",
                  "decoding.", "data.root", "data.cache_dir", "data.test", "name")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a call ended. `reason` is None where a signal ended it; `exit_status` is 0, 130 or 143."""

    run: RunFolder
    step: int
    reason: str | None
    exit_status: int


def start_or_resume(config: RunConfig, run: RunFolder, resume: bool) -> Outcome:
    """Train the config in the folder `run`, going on from its newest checkpoint if `resume` and there is one.

    Raises UserError for a run that exists without `resume`, for a config that differs from the run's in what must not
    change, and for whatever is wrong with the data.
    """
    if not resume and run.exists():
        raise UserError(
            f"{run.path} exists already. Go on with it by adding `--resume auto`, "
            f"or train beside it with another name, for example name={config.name}_2."
        )
    _refuse_unless_writable(run)
    recover(run)
    if run.checkpoints.exists() and not run.config.exists():
        raise UserError(
            f"{run.config} is gone, though there are checkpoints beside it. Put it back (`tmt config show FILE` prints "
            "what it held), or train under another name."
        )
    going_on = resume and bool(run.steps())
    if going_on:
        refuse_changes(load_config(str(run.config.resolve())).config, config)
    return _train(config, run, going_on)


def _refuse_unless_writable(run: RunFolder) -> None:
    """UserError now rather than after the data was prepared."""
    place = next(path for path in (run.path.absolute(), *run.path.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = "cannot be written to" if place.is_dir() else "is a file, not a folder"
        raise UserError(f"{place} {what}, so there is no place for the run. Choose another with --runs or name=NEW.")


def refuse_changes(before: RunConfig, now: RunConfig) -> None:
    """UserError naming every setting that differs and must not."""
    old, new = _flat(before.model_dump()), _flat(now.model_dump())
    # The end of the training is free to change, unless the learning rate is worked out from it.
    bound = ("training.max_steps",) if now.training.schedule == "cosine" else ()
    changed = [
        f"{key}: was {old.get(key)!r}, is {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and (key in bound or not key.startswith(FREE_TO_CHANGE))
    ]
    if changed:
        raise UserError(
            "The run was begun with another config, and going on would not be the same training:\n  "
            + "\n  ".join(changed)
            + "\nRestore these values, or train from the start under another name (name=NEW)."
        )


def _train(config: RunConfig, run: RunFolder, going_on: bool) -> Outcome:
    state = TrainingState.read(run.step(run.steps()[-1]) / STATE) if going_on else TrainingState()
    if (reason := state.reason_to_stop(config)) and state.last_validation_step == state.step:
        return Outcome(run, state.step, reason, 0)
    data = prepare_data(config, load_tokenizers(run.tokenizers, config.tokenizer) if going_on else None)
    print("\n".join(report_lines(data)))
    updater = _make_updater(config, data, state.precision if going_on else None)
    if going_on:
        load_checkpoint(run, updater.model, updater.optimizer)
        if state.loss_scale is not None:
            updater.scaler.load_state_dict(state.loss_scale)
        print(f"going on from step {state.step:,}")
    _compare_with_now(state, updater, data)
    _write_beginnings(config, run, None if going_on else data)
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
    finally:
        monitor.close()
    return Outcome(run, state.step, reason, 0 if reason else request.exit_status or 0)


def _make_updater(config: RunConfig, data: PreparedData, precision_before: str | None) -> Updater:
    """A fresh model on the device and in the precision of the config, or in that of the run so far; says which."""
    device, why_device = choose_device(config.training.device)
    place = torch.device(device)
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
    fingerprint = f"{data.train.corpus.fingerprint} {data.validation.corpus.fingerprint}"
    now = {
        "device": str(updater.device),
        "precision": updater.precision,
        "num_threads": torch.get_num_threads(),
        "torch_version": str(torch.__version__),
    }
    if state.step > 0:
        if state.data_fingerprint != fingerprint:
            raise UserError(
                "The training or validation data changed since this run was begun, and going on would not be the same "
                "training. Restore the files, or train from the start under another name (name=NEW)."
            )
        for name, value in now.items():
            if getattr(state, name) != value:
                print(
                    f"note: {name} was {getattr(state, name)} and is {value}: the numbers may differ in the last digits"
                )
    state.data_fingerprint = fingerprint
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


def _flat(mapping: dict, prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
