"""From a config to a trained run: a fresh start, or going on from the newest checkpoint."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from transformer_mt.checking.quick import OF_A_STREAM, quick_check
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.preparation import TrainingData, prepare_training_data, report_lines
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.vocabulary.sizes import reason as reason_of_auto
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.machine import launch
from transformer_mt.machine.busy.giving_way import give_way
from transformer_mt.machine.determinism import be_deterministic
from transformer_mt.machine.device import DTYPES, Choice, choose_device, choose_precision, machine_name, set_up
from transformer_mt.machine.joining import is_restart, joined_world, mark_beginning
from transformer_mt.machine.memory import keep_freed_memory
from transformer_mt.machine.world import World
from transformer_mt.model.cpu.attention import prepare_attention
from transformer_mt.model.named_parts import frozen_line
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.begin import (
    Beginning,
    begin,
    of_other_configs,
    refuse_unless_writable,
    set_lost_scores_aside,
    write_beginnings,
)
from transformer_mt.training.compiling import choose_compile
from transformer_mt.training.explaining import explained
from transformer_mt.training.final_average import average_is_due
from transformer_mt.training.fine_tuning.kept_tokenizers import kept_tokenizers, way_to_new_words
from transformer_mt.training.fine_tuning.take_weights import take_weights
from transformer_mt.training.loop import Trainer
from transformer_mt.training.memory.fits_memory import refuse_what_never_fits
from transformer_mt.training.micro_batch import computed_with
from transformer_mt.training.monitoring.monitor import Monitor, Silence, Watch
from transformer_mt.training.monitoring.step_profile import StepProfiler
from transformer_mt.training.regularising.unigram import smoothing_prior
from transformer_mt.training.resuming.checkpoints import read_checkpoint, refuse_without_room, remove_superfluous
from transformer_mt.training.resuming.resume_rules import (
    Changes,
    Splits,
    changes_the_rate,
    other_splits,
    record_changes,
    refuse_other_data,
)
from transformer_mt.training.resuming.run_lock import sole_trainer
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.stop_signals import stop_on_signals
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import refuse_unread

NOTABLE_SECONDS = 3.0  # compiling that takes longer is told, because a user would wonder
SAME_SIGNAL_SECONDS = 2.0
SHARING_NAMES = {"none": "each with the whole model (DDP)", "full": "each with a part of the model (FSDP2)"}


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `reason` is None where a signal ended it. `exit_status` is 0, or 128 + the number of the
    signal: 129, 130 or 143. `best_metrics` are those of the best validation, at `best_step`; None where there was none.
    `metric` is the one by which it is the best. `num_epochs` were begun.
    """

    run: RunFolder
    step: int
    reason: str | None
    exit_status: int
    best_step: int | None
    best_metrics: dict[str, float] | None
    metric: str
    num_epochs: int


def start_or_resume(
    config: RunConfig,
    run: RunFolder,
    resume: bool,
    change_lr: bool = False,
    profiled: bool = False,
    watch: Watch | None = None,
) -> Outcome:
    """Train the config in the folder `run`, going on from its newest whole checkpoint if `resume` and there is one.
    `profiled`: see `step_profile.py`. `watch` is called with a report of each step, in the first process.

    Raises UserError where the run exists and `resume` is false, where another process trains it, where a setting
    differs that must not change (with `change_lr` the learning rate may), and where the data is wrong. Processes that
    `torchrun` started train together; only the first of them touches the folder.
    """
    several = launch.num_processes() > 1
    try:
        device = choose_device(config.training.device, launch.local_rank() if several else None)
    except UserError as error:
        raise launch.told_once(error) from error
    set_up(torch.device(device.value))
    with ExitStack() as held:
        world = held.enter_context(joined_world(torch.device(device.value), config.training.timeout_minutes))
        if said := of_other_configs(world.gather(config)):
            print(said)

        def in_first() -> Beginning:
            refuse_unless_writable(run, resume)
            held.enter_context(sole_trainer(run))
            name = str(run.path.absolute())
            begun = begin(config, run, resume or is_restart(name), change_lr, world.size)
            mark_beginning(name)
            return begun

        return _train(config, world.first(in_first, patient=True), run, device, world, profiled, watch)


def _train(
    asked: RunConfig,
    begun: Beginning,
    run: RunFolder,
    device: Choice,
    world: World,
    profiled: bool,
    watch: Watch | None,
) -> Outcome:
    config, state, going_on = begun.config, begun.state, begun.going_on
    if reason := state.reason_of_the_end(config):
        if not world.first(lambda: average_is_due(config, run, state)):
            return _leave_alone(begun, run, world, profiled, reason)
        asked, begun = _for_its_average(asked, begun, run, world)
        config, state = begun.config, begun.state
    if begun.remark:
        print(begun.remark)
    data = _prepare_together(begun, run, world)
    world.first(lambda: refuse_unread(config, data), patient=True)
    print("\n".join(report_lines(data, *way_to_new_words(config))))
    has_pairs = config.data.has_pairs
    if config.data.check == "quick" and not going_on and has_pairs:
        whole = None if isinstance(data.train, Stream) else data.train.corpus
        print(world.first(lambda: quick_check(whole, config.data) if whole else OF_A_STREAM, patient=True))
    if config.tokenizer.vocab_size == "auto":
        print(f"tokenizer.vocab_size {reason_of_auto()}")
    updater = _make_updater(begun, data, device, world)
    world.first(lambda: updater.limit.read(run.memory_limit, machine_name(updater.device)))
    updater.limit.smallest_failed = world.first(lambda: updater.limit.smallest_failed)
    if going_on:
        _restore(updater, state, run, world)
        print(f"going on from step {state.step:,}")
        if isinstance(data.train, Stream):
            data.train.go_on_from(state.epoch, state.stream)
    _compare_with_now(state, updater, data)

    def write_first() -> None:
        refuse_without_room(run, updater.model, config)
        write_beginnings(asked, run, None if going_on else data, begun.source)
        if begun.before and changes_the_rate(begun.before, config):
            set_lost_scores_aside(run, state.step)
        record_changes(begun.changes, run, state.step)

    world.first(write_first)
    monitor = Monitor(run, config, state, watch) if world.is_first else Silence()
    profiler = StepProfiler(run.profile, updater.device, monitor.say) if profiled and world.is_first else None
    try:
        with explained(updater, state, run, world):
            # Until here Ctrl-C may stop at once, because every file is whole or not there.
            with stop_on_signals(SAME_SIGNAL_SECONDS if world.size > 1 else 0.0) as request:
                trainer = Trainer(config, data, updater, run, state, monitor, request, profiler)
                reason = trainer.train()
            if reason is not None:
                monitor.hparams(trainer.last_metrics)
                monitor.summarise()
    finally:
        monitor.close()
    status = 0 if reason else trainer.stop_status or 0
    return _outcome(run, state, reason, status, config)


def _leave_alone(begun: Beginning, run: RunFolder, world: World, profiled: bool, reason: str) -> Outcome:
    """Say that a finished run stays as it is. `reason` is why it is over by the config of now."""
    if begun.changes:  # they might make another checkpoint the best, and they are not kept: so no checkpoint is deleted
        print(f"nothing was changed, for the run is finished: {_staying(begun.changes)}")
    else:  # a kill may have come between the last save and its deletions
        world.first(lambda: remove_superfluous(run, begun.state.best_step, begun.config.training.keep_checkpoints))
    if profiled:
        print("profile: nothing was profiled, for the run is finished")
    before = begun.before or begun.config
    kept = world.first(lambda: TrainingState.read(run.step(begun.state.step) / STATE))  # judged by its own metric
    reason = kept.reason_to_stop(before) or reason
    return _outcome(run, kept, reason, 0, before)


def _outcome(run: RunFolder, state: TrainingState, reason: str | None, status: int, config: RunConfig) -> Outcome:
    best, metric = (state.best_step, state.best_metrics), config.validation.metric
    return Outcome(run, state.step, reason, status, *best, metric, state.num_epochs)


def _for_its_average(asked: RunConfig, begun: Beginning, run: RunFolder, world: World) -> tuple[RunConfig, Beginning]:
    """A finished run that lacks its average is given that alone: other settings would judge its checkpoints anew, and
    might delete the best. Returns the config to be written, and what the run begins with.
    """
    own = begun.before or begun.config
    state = world.first(lambda: TrainingState.read(run.step(begun.state.step) / STATE))
    if state.reason_to_stop(own) is None:  # it is over by the settings of now alone
        return asked, begun
    training = begun.config.training
    given = {"average_last": training.average_last}
    if (training.average_last or 0) > own.training.keep_checkpoints:  # fewer would be refused beside it
        given["keep_checkpoints"] = training.keep_checkpoints
    others = {key: values for key, values in begun.changes.items() if key.removeprefix("training.") not in given}
    if others:
        print(f"nothing else was changed, for the run is finished: {_staying(others)}")
    written = TrainingConfig.model_validate({**own.training.model_dump(), **given})
    asked = own.model_copy(update={"training": written})
    shared_out = written.model_copy(update={"grad_accum": training.grad_accum})
    config = asked.model_copy(update={"training": shared_out})
    changes = {key: values for key, values in begun.changes.items() if key not in others}
    return asked, replace(begun, config=config, state=state, changes=changes, remark=None)


def _staying(changes: Changes) -> str:
    return ", ".join(f"{key} stays {before!r}" for key, (before, _) in changes.items())


def _prepare_together(begun: Beginning, run: RunFolder, world: World) -> TrainingData:
    """Prepare the data, the first process before the others. All get its tokenizers and must read equal data."""
    config, prepared = begun.config, []

    def prepare() -> tuple[Tokenizer, Tokenizer]:
        there = load_tokenizers(run.tokenizers, config.tokenizer) if begun.going_on else None
        data = prepare_training_data(config, kept_tokenizers(config, begun.source) if begun.source else there)
        prepared.append(data)
        return data.src_tokenizer, data.tgt_tokenizer

    tokenizers = world.first(prepare, patient=True)
    data = world.one_first(lambda: prepared[0] if prepared else prepare_training_data(config, tokenizers))
    read = world.gather(_fingerprints(data))
    if others := [rank for rank, splits in enumerate(read) if splits != read[0]]:
        lines = "\n  ".join(other_splits(read[0], read[others[0]], "process 0 has", f"process {others[0]}"))
        error = UserError(f"The processes read other data, and the same files must be on every machine:\n  {lines}")
        raise world.told_by_one(error)
    return data


def _fingerprints(data: TrainingData) -> Splits:
    return {split.name: split.identity() for split in (data.train, data.validation)}


def _restore(updater: Updater, state: TrainingState, run: RunFolder, world: World) -> None:
    """Fill the updater from the newest checkpoint, whose state was read before."""
    read: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
    world.first(lambda: read.append(read_checkpoint(run, updater.model)), patient=True)
    updater.restore(*(read[0] if read else ({}, {})))
    if state.loss_scale is not None:
        updater.scaler.load_state_dict(state.loss_scale)
    if state.memory_limit is not None and state.device == _name(updater):
        updater.limit.smallest_failed = min(updater.limit.smallest_failed, state.memory_limit)


def _make_updater(begun: Beginning, data: TrainingData, chosen: Choice, world: World) -> Updater:
    """A model on the device, fresh or with the weights that it begins with, in the precision of the run so far or else
    of the config. Prints the choice.
    """
    config = begun.config
    precision_before = begun.state.precision if begun.going_on else None
    device = torch.device(chosen.value)
    sizes = data.src_tokenizer.vocab_size, data.tgt_tokenizer.vocab_size
    refuse_what_never_fits(config, *sizes, device, world)  # before products of that width are timed
    if config.training.deterministic:  # before anything is computed there
        print(f"deterministic: {be_deterministic(device)}")
    if device.type == "cpu":
        keep_freed_memory()
        give_way(torch.get_num_threads())
    if precision_before is not None:
        precision, why = precision_before, "as before"
    else:
        wanted, d_model = config.training.precision, config.model.d_model
        precision, why = world.first(lambda: choose_precision(wanted, device, d_model))
    torch.manual_seed(config.seed)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer).to(device)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"model: {num_parameters:,} parameters")
    if begun.source:
        world.first(partial(take_weights, model, begun.source), patient=True)
    if freeze := config.training.freeze:
        print(frozen_line(model, freeze))
    compiled, why_compiled = choose_compile(config.training, config.model, device, world.size)
    print(f"device: {device} ({chosen.reason}); precision: {precision} ({why}); compile: {compiled} ({why_compiled})")
    if (sharding := config.training.sharding) == "full" and precision == "fp16" and world.size > 1:
        error = UserError(
            "training.precision is fp16, whose scaling of the loss does not go with training.sharding: full. Use bf16 "
            "or fp32, or sharding: none."
        )
        raise world.told_by_one(error)
    if world.size > 1:
        print(f"processes: {world.size}, {SHARING_NAMES[sharding]}")
    elif sharding == "full":
        print("note: training.sharding is full, and there is one process, which has all of the model")
    if device.type == "cpu" and compiled == "off":
        for head_dim in {m.head_dim for m in model.modules() if isinstance(m, MultiHeadAttention)}:
            _prepare(precision, head_dim)
    prior = smoothing_prior(config.training, data.train, data.tgt_tokenizer.vocab_size)
    return Updater(model, config.training, config.seed, precision, device, world, compiled == "on", prior)


def _prepare(precision: str, head_dim: int) -> None:
    start = time.perf_counter()
    is_there = prepare_attention(DTYPES.get(precision, torch.float32), head_dim)
    if is_there and (seconds := time.perf_counter() - start) > NOTABLE_SECONDS:
        print(f"attention has been compiled for this processor in {seconds:.0f} s")


def _compare_with_now(state: TrainingState, updater: Updater, data: TrainingData) -> None:
    """Refuse other data than the checkpoint's, print what else changed, and put what holds now into the state."""
    if state.device.partition(":")[0] != updater.device.type:
        state.validation_precision = ""  # another device may be faster in another precision, or lack this one
    splits = _fingerprints(data)
    now = computed_with(updater.model, updater.precision)
    now |= {"device": _name(updater), "compiled": updater.compiled is not None}
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
    """The name of the device. Where several processes train, only its type, which all have in common."""
    return str(updater.device) if updater.world.size == 1 else updater.device.type
