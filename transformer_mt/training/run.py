"""From a config to a trained run: a fresh start, or going on from the newest checkpoint."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.config.files import replace_file, way_to_write
from transformer_mt.config.loading import dump_config
from transformer_mt.config.run_folder import RunFolder, run_folder_errors
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.encoding import load_tokenizers, save_tokenizers
from transformer_mt.data.preparation import TrainingData, prepare_training_data, report_lines
from transformer_mt.data.stream import Stream, StreamError
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.checkpoint import STATE, build_model
from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine import launch
from transformer_mt.machine.determinism import be_deterministic
from transformer_mt.machine.device import DTYPES, Choice, choose_device, choose_precision, machine_name, set_up
from transformer_mt.machine.joining import is_restart, joined_world, mark_beginning
from transformer_mt.machine.memory import is_out_of_memory, keep_freed_memory
from transformer_mt.machine.world import World
from transformer_mt.model.cpu.attention import prepare_attention
from transformer_mt.model.cpu.dropout import draws_with_numba
from transformer_mt.training.changes import (
    TRANSLATIONS,
    Changes,
    Splits,
    adapted_grad_accum,
    allowed_changes,
    record_changes,
    refuse_other_data,
)
from transformer_mt.training.checkpoints import (
    read_checkpoint,
    recover,
    refuse_without_room,
    remove_superfluous,
    set_damaged_aside,
    settings_so_far,
)
from transformer_mt.training.compiling import choose_compile
from transformer_mt.training.interrupt import stop_on_signals
from transformer_mt.training.lock import sole_trainer
from transformer_mt.training.loop import Trainer
from transformer_mt.training.metrics_file import cut_back, read_validations
from transformer_mt.training.model_room import refuse_what_never_fits
from transformer_mt.training.monitor import Monitor, Silence
from transformer_mt.training.profile import StepProfiler
from transformer_mt.training.state import TrainingState
from transformer_mt.training.updates import NoRoomError, Updater
from transformer_mt.training.validation import TRANSLATION_METRICS, is_better

NOTABLE_SECONDS = 3.0  # of compiling, which a user wonders about
SAME_SIGNAL_SECONDS = 2.0
EARLIER_METRICS = "metrics_before.jsonl"
SHARING_NAMES = {"none": "each with the whole model (DDP)", "full": "each with a part of the model (FSDP2)"}


@dataclass(frozen=True)
class Outcome:
    """How a call ended. `reason` is None where a signal ended it; `exit_status` is 0, or 128 and
    the number of a signal: 129, 130 or 143."""

    run: RunFolder
    step: int
    reason: str | None
    exit_status: int


@dataclass
class _Begun:
    """What the first process found in the folder, for all of them: the state to go on from, or a fresh one; what the
    config changes; the config with which an update stays what it was; what is to be said where it does go on.
    """

    going_on: bool
    state: TrainingState
    changes: Changes
    config: RunConfig
    remark: str | None = None


def start_or_resume(
    config: RunConfig, run: RunFolder, resume: bool, change_lr: bool = False, profiled: bool = False
) -> Outcome:
    """Train the config in the folder `run`, going on from its newest whole checkpoint if `resume` and there is one.
    `profiled`: see `profile.py`.

    Raises UserError for a run that exists without `resume`, or is being trained by another process; for a config that
    differs from the run's in what must not change (with `change_lr` the learning rate may); for whatever is wrong with
    the data. Processes that `torchrun` started do it together, the first of them alone with what is in the folder.
    """
    several = launch.num_processes() > 1
    try:
        device = choose_device(config.training.device, launch.local_rank() if several else None)
    except UserError as error:
        raise launch.told_once(error) from error
    set_up(torch.device(device.value))
    with ExitStack() as held:
        world = held.enter_context(joined_world(torch.device(device.value), config.training.timeout_minutes))

        def begin() -> _Begun:
            _refuse_unless_writable(run)
            held.enter_context(sole_trainer(run))
            name = str(run.path.absolute())
            begun = _begin(config, run, resume or is_restart(name), change_lr, world.size)
            mark_beginning(name)
            return begun

        return _train(config, world.first(begin, patient=True), run, device, world, profiled)


def _begin(config: RunConfig, run: RunFolder, resume: bool, change_lr: bool, num_processes: int) -> _Begun:
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
    if not (resume and run.steps()):
        if resume:
            _set_metrics_aside(run)
        per_update = config.training.grad_accum * num_processes
        return _Begun(False, TrainingState(micro_batches_per_update=per_update), {}, config)
    before = settings_so_far(run)
    changes = allowed_changes(before, config, change_lr)
    state = TrainingState.read(run.step(run.steps()[-1]) / STATE)
    translations = [key for key in TRANSLATIONS if key in changes]
    if translations:
        state.incomparable_until = state.step
    metric, remark = config.validation.metric, None
    if "validation.metric" in changes:
        remark = f"validation.metric is {metric} now; {_judge_anew(state, metric, run)}"
    elif translations and metric in TRANSLATION_METRICS:
        changed = " and ".join(translations)
        remark = f"{changed} changed, so {metric} is of other translations now; {_judge_anew(state, metric, run)}"
    grad_accum = adapted_grad_accum(before, config, state.micro_batches_per_update, num_processes)
    if grad_accum != config.training.grad_accum:
        processes = f"{num_processes} process{'es' * (num_processes > 1)}"
        print(f"training.grad_accum is {grad_accum} for {processes}, so that an update stays what it was")
        config = config.model_copy(update={"training": config.training.model_copy(update={"grad_accum": grad_accum})})
    return _Begun(True, state, changes, config, remark)


def _set_metrics_aside(run: RunFolder) -> None:
    """Where a run begins anew whose checkpoints are gone or were never reached, its numbers may be all that is left."""
    if run.metrics.exists() and run.metrics.stat().st_size:
        aside = run.metrics.with_name(EARLIER_METRICS)
        os.replace(run.metrics, aside)
        print(f"{run.path} has no checkpoint, so training begins anew; the numbers so far are now in {aside}")


def _judge_anew(state: TrainingState, metric: str, run: RunFolder) -> str:
    """By other scores another checkpoint may be the best, and it is not known that this one stands still. Where none of
    those that are left has such a score, the best so far is kept until a validation finds the next. Returns in words
    which one it is.
    """
    cut_back(run.metrics, state)
    scores = read_validations(run.metrics)
    state.best_metrics, state.num_bad_validations = None, 0
    since = state.incomparable_until if metric in TRANSLATION_METRICS else 0
    for step in run.steps():
        if step > since and metric in scores.get(step, {}) and is_better(metric, scores[step], state.best_metrics):
            state.best_step, state.best_metrics = step, scores[step]
    best = "the next validation's" if state.best_metrics is None else f"step {state.best_step:,}"
    return f"of the checkpoints that are left the best is {best}"


def _refuse_unless_writable(run: RunFolder) -> None:
    """UserError now rather than after the data was prepared."""
    place = next(path for path in (run.path.absolute(), *run.path.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = "cannot be written to" if place.is_dir() else "is a file, not a folder"
        raise UserError(f"{place} {what}, so there is no place for the run. Choose another with --runs or name=NEW.")


def _train(asked: RunConfig, begun: _Begun, run: RunFolder, device: Choice, world: World, profiled: bool) -> Outcome:
    config, state, going_on = begun.config, begun.state, begun.going_on
    if (reason := state.reason_to_stop(config)) and state.last_validation_step == state.step:
        if begun.changes:  # which may have another checkpoint for the best: none is deleted for what is not kept
            kept = ", ".join(f"{key} stays {before!r}" for key, (before, _) in begun.changes.items())
            print(f"nothing was changed, for the run is finished: {kept}")
        else:  # a kill may have come between the last save and this
            world.first(lambda: remove_superfluous(run, state.best_step, config.training.keep_checkpoints))
        if profiled:
            print("profile: nothing was profiled, for the run is finished")
        return Outcome(run, state.step, reason, 0)
    if begun.remark:
        print(begun.remark)
    data = _prepare_together(config, run, going_on, world)
    print("\n".join(report_lines(data)))
    updater = _make_updater(config, data, state.precision if going_on else None, device, world)
    world.first(lambda: updater.limit.read(run.memory_limit, machine_name(updater.device)))
    updater.limit.smallest_failed = world.first(lambda: updater.limit.smallest_failed)
    if going_on:
        _restore(updater, state, run, world)
        print(f"going on from step {state.step:,}")
        if isinstance(data.train, Stream):
            data.train.go_on_from(state.epoch, state.stream)
    _compare_with_now(state, updater, data)

    def write_beginnings() -> None:
        refuse_without_room(run, updater.model, config.training.keep_checkpoints)
        _write_beginnings(asked, run, None if going_on else data)
        record_changes(begun.changes, run, state.step)

    world.first(write_beginnings)
    monitor = Monitor(run, config, state) if world.is_first else Silence()
    profiler = StepProfiler(run.profile, updater.device, monitor.say) if profiled and world.is_first else None
    try:
        with _told(updater, state, run, world):
            # Only here: until now Ctrl-C may stop at once, since what was being written is whole or not there.
            with stop_on_signals(SAME_SIGNAL_SECONDS if world.size > 1 else 0.0) as request:
                trainer = Trainer(config, data, updater, run, state, monitor, request, profiler)
                reason = trainer.train()
            if reason is not None:
                monitor.hparams(trainer.last_metrics)
    finally:
        monitor.close()
    return Outcome(run, state.step, reason, 0 if reason else trainer.stop_status or 0)


@contextmanager
def _told(updater: Updater, state: TrainingState, run: RunFolder, world: World) -> Iterator[None]:
    """What ends a training and is no fault of ours, as a UserError."""
    try:
        yield
    except NoRoomError as error:
        raise _noted(error, updater, run) from error
    except StreamError as error:
        raise error if world.is_first else ToldElsewhereError(str(error)) from error
    except OSError as error:  # what is opened in there is in the folder of the run, the mapped data apart
        place = os.fsdecode(error.filename or run.path)  # TensorBoard's writer names files by bytes
        raise UserError(
            f"{place} could not be written: {error.strerror or error}. The checkpoints so far are whole; "
            f"{way_to_write(error, run.path)} and go on with `tmt train --resume {run.quoted}`."
        ) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(  # an update splits what does not fit; this was a validation, or the first step's moments
            f"The memory of {updater.device} ran out beside an update, in step {state.step + 1:,} or the validation "
            "before it. The checkpoints so far are whole. Lower training.max_tokens or decoding.batch_size, train a "
            "smaller model, or use another training.device."
        ) from error


def _noted(error: NoRoomError, updater: Updater, run: RunFolder) -> UserError:
    """What to say of a lack of memory that stops all processes; noted for the next start."""
    try:
        updater.limit.write(run.memory_limit, machine_name(updater.device))
    except OSError as failure:
        return UserError(
            f"{error} That could not be noted in {run.memory_limit} ({failure.strerror or failure}); lower "
            "training.max_tokens and train under another name (name=NEW)."
        )
    return UserError(
        f"{error} This is noted: go on with --resume auto, and what is as large is computed in parts. The checkpoints "
        "are whole."
    )


def _prepare_together(config: RunConfig, run: RunFolder, going_on: bool, world: World) -> TrainingData:
    """The same data in all processes, with the tokenizers of the first one, which is there first."""
    prepared: list[TrainingData] = []

    def prepare() -> tuple[Tokenizer, Tokenizer]:
        data = prepare_training_data(config, load_tokenizers(run.tokenizers, config.tokenizer) if going_on else None)
        prepared.append(data)
        return data.src_tokenizer, data.tgt_tokenizer

    tokenizers = world.first(prepare, patient=True)
    data = world.one_first(lambda: prepared[0] if prepared else prepare_training_data(config, tokenizers))
    read = world.gather(_fingerprints(data))
    if others := [rank for rank, splits in enumerate(read) if splits != read[0]]:
        error = UserError(
            f"Process {others[0]} of {world.size} reads other data than process 0: {read[others[0]]}, not {read[0]}. "
            "The same files must be on every machine."
        )
        raise error if world.is_first else ToldElsewhereError(str(error))
    return data


def _fingerprints(data: TrainingData) -> Splits:
    return {split.name: split.identity() for split in (data.train, data.validation)}


def _restore(updater: Updater, state: TrainingState, run: RunFolder, world: World) -> None:
    """Fill the updater from the newest checkpoint, whose state is given."""
    read: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
    world.first(lambda: read.append(read_checkpoint(run, updater.model)), patient=True)
    updater.restore(*(read[0] if read else ({}, {})))
    if state.loss_scale is not None:
        updater.scaler.load_state_dict(state.loss_scale)
    if state.memory_limit is not None and state.device == _name(updater):
        updater.limit.smallest_failed = min(updater.limit.smallest_failed, state.memory_limit)


def _make_updater(
    config: RunConfig, data: TrainingData, precision_before: str | None, chosen: Choice, world: World
) -> Updater:
    """A fresh model on the device, in the precision of the config or in that of the run so far; says which."""
    device = torch.device(chosen.value)
    sizes = data.src_tokenizer.vocab_size, data.tgt_tokenizer.vocab_size
    refuse_what_never_fits(config, *sizes, device, world)  # before a product of the model's width is timed
    if config.training.deterministic:  # before anything is computed there
        print(f"deterministic: {be_deterministic(device)}")
    if device.type == "cpu":
        keep_freed_memory()
    if precision_before is not None:
        precision, why = precision_before, "as before"
    else:
        wanted, d_model = config.training.precision, config.model.d_model
        precision, why = world.first(lambda: choose_precision(wanted, device, d_model))
    torch.manual_seed(config.seed)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer).to(device)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"model: {num_parameters:,} parameters")
    compiled, why_compiled = choose_compile(config.training, config.model, device, world.size)
    print(f"device: {device} ({chosen.reason}); precision: {precision} ({why}); compile: {compiled} ({why_compiled})")
    if (sharding := config.training.sharding) == "full" and precision == "fp16" and world.size > 1:
        error = UserError(
            "training.precision is fp16, whose scaling of the loss does not go with training.sharding: full. Use bf16 "
            "or fp32, or sharding: none."
        )
        raise error if world.is_first else ToldElsewhereError(str(error))
    if world.size > 1:
        print(f"processes: {world.size}, {SHARING_NAMES[sharding]}")
    elif sharding == "full":
        print("note: training.sharding is full, and there is one process, which has all of the model")
    if device.type == "cpu" and compiled == "off":
        _prepare(precision, config.model.d_model // config.model.num_heads)
    return Updater(model, config.training, config.seed, precision, device, world, compiled == "on")


def _prepare(precision: str, head_dim: int) -> None:
    start = time.perf_counter()
    is_there = prepare_attention(DTYPES.get(precision, torch.float32), head_dim)
    if is_there and (seconds := time.perf_counter() - start) > NOTABLE_SECONDS:
        print(f"attention has been compiled for this processor in {seconds:.0f} s")


def _compare_with_now(state: TrainingState, updater: Updater, data: TrainingData) -> None:
    """Refuse other data than the checkpoint's; say what else can change the last digits; note what holds now."""
    if state.device.partition(":")[0] != updater.device.type:
        state.validation_precision = ""  # another device may be faster at another, and not every one has every one
    splits = _fingerprints(data)
    now = {
        "device": _name(updater),
        "precision": updater.precision,
        "compiled": updater.compiled is not None,
        "num_threads": torch.get_num_threads(),
        "torch_version": str(torch.__version__),
        "numba": draws_with_numba(updater.device),
        "unpadded": updater.goes_unpadded,
    }
    if state.step > 0:
        refuse_other_data(state.data, splits)
        for name, value in now.items():
            if getattr(state, name) != value:
                other = (
                    "dropout draws others, and the last digits may differ"
                    if name in ("numba", "unpadded")
                    else "the numbers may differ in the last digits"
                )
                print(f"note: {name} was {getattr(state, name)} and is {value}: {other}")
    state.data = splits
    for name, value in now.items():
        setattr(state, name, value)


def _name(updater: Updater) -> str:
    """The device's name; of those of several processes, what they have in common."""
    return str(updater.device) if updater.world.size == 1 else updater.device.type


def _write_beginnings(config: RunConfig, run: RunFolder, data: TrainingData | None) -> None:
    """What makes the folder of a run self-contained, before the first checkpoint: tokenizers, then the config.

    Without data only the config, in which a resumed run may have changed the little that it may.
    """
    with run_folder_errors(run):
        run.path.mkdir(parents=True, exist_ok=True)
        if data is not None:
            save_tokenizers(run.tokenizers, data.src_tokenizer, data.tgt_tokenizer)
        replace_file(run.config, dump_config(config))
