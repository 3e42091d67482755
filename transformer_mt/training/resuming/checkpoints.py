"""Checkpoints, written and read back into model and optimizer: folders that are whole or not there.

A folder is written beside its final name, synced, then renamed, so none is ever seen half-written.

    checkpoints/step_N/model.safetensors, optimizer.safetensors, state.json, settings.yaml, and at last manifest.json
    (sizes, hashes)

With training.ema_decay the weights to translate with are the moving average; the trained ones lie by the optimizer.

The newest checkpoint is `last`. Its state names the `best` step, whose folder is kept too. There is no pickle.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_mt.config.loading import dump_config, read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.model.named_parts import trained
from transformer_mt.paths import exists, is_dir, what_exists_of
from transformer_mt.plurals import counted
from transformer_mt.storage.checkpoint_files import OPTIMIZER, SETTINGS, STATE, WEIGHTS
from transformer_mt.storage.files import TEMPORARY, make_folder, remove, way_to_write
from transformer_mt.storage.manifest import DamagedError, check_manifest, write_manifest
from transformer_mt.storage.run_folder import STEP_PREFIX, RunFolder
from transformer_mt.storage.weights import read_tensors, read_weights, save_tensors
from transformer_mt.training.resuming.run_lock import other_trainer
from transformer_mt.training.resuming.training_state import TrainingState

TRAINED = "trained"  # the key of a weight among the optimizer's tensors, where model.safetensors has its average
_OF_A_TENSOR = 75  # bytes of its entry in the head of a file, beside its name
_OF_TEXT = 4096  # bytes of state and manifest
_ASIDE = ".aside-"
_WHOLE = "The checkpoints before it are whole"
_GO_ON = "go on with --resume"
_DAMAGED = "damaged_"


class SaveError(UserError):
    """A checkpoint could not be written; those before it are whole."""


def check_folder(run: RunFolder, step: int) -> None:
    """SaveError where the run's folder is gone: a new folder would hold the new step, but not the config of the run.
    Another training may have made it since.
    """
    gone = (
        f"The checkpoint {run.step(step)} could not be written: the folder {run.path} was moved or deleted while this "
        "training wrote to it"
    )
    if not is_dir(run.path):
        raise SaveError(f"{gone}. {_WHOLE}; put the folder back and {_GO_ON}.")
    if other := other_trainer(run):
        raise SaveError(
            f"{gone}, and {other} trains another run there now. {_WHOLE}; put the folder back under another name and "
            f"{_GO_ON} and that name."
        )


def save_checkpoint(
    run: RunFolder, weights: dict[str, Tensor], moments: dict[str, Tensor], state: TrainingState, config: RunConfig
) -> Path:
    """Write `step_N`, then delete all checkpoints but the best and the newest, of which the config keeps some.
    SaveError where the checkpoint cannot be written.

    `weights` have the names of `unique_weights`, `moments` those of `optimizer_tensors`.
    """

    def write(folder: Path) -> None:
        save_tensors(weights, folder / WEIGHTS)
        save_tensors(moments, folder / OPTIMIZER)
        state.write(folder / STATE)
        (folder / SETTINGS).write_text(dump_config(config), encoding="utf-8")

    final = run.step(state.step)
    needed, free = bytes_of_files(config, weights, moments), free_bytes(run.checkpoints)
    if free < needed:
        raise SaveError(
            f"There is no room for the checkpoint {final}: it needs {megabytes(needed)}, and {megabytes(free)} are "
            f"free. {_WHOLE}; free some space and {_GO_ON}."
        )
    write_folder(final, write)
    remove_superfluous(run, state.best_step, config.training.keep_checkpoints)
    return final


def remove_superfluous(run: RunFolder, best_step: int | None, keep: int) -> None:
    """Delete all checkpoints but the newest `keep` and the best. One that a signal alone asked for is kept beside them
    as long as it is the newest: so those of a run that was stopped are in the end those of a run that never was.

    One that cannot be deleted stays for the next call: Windows deletes none that a program is translating with.
    """
    steps = run.steps()
    kept = regular_steps(run)[-keep:]
    for step in steps[:-1]:
        if step not in kept and step != best_step:
            with suppress(OSError):
                remove(run.step(step))


def regular_steps(run: RunFolder) -> list[int]:
    """The steps of the checkpoints that the run would have if no signal had ever stopped it."""
    return [step for step in run.steps() if not _is_only_for_a_stop(run.step(step))]


def _is_only_for_a_stop(checkpoint: Path) -> bool:
    try:
        return TrainingState.read(checkpoint / STATE).only_for_a_stop
    except UserError:  # it is damaged or of another version, which whoever reads it says
        return False


def read_checkpoint(run: RunFolder, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and moments of the newest checkpoint, after `set_damaged_aside` has checked it. UserError where they are
    not those of this model.
    """
    folder = run.step(run.steps()[-1])
    return read_weights(model, folder / WEIGHTS), read_tensors(folder / OPTIMIZER)


def settings_so_far(run: RunFolder) -> RunConfig:
    """The settings with which the newest checkpoint was trained, even if the run's `config.yaml` was edited since.
    `set_damaged_aside` must have checked the checkpoint.

    Some come from `config.yaml`: `training.grad_accum`, the value that the user asked for, not the one that several
    processes made of it, and `training.average_last`, which a run may be given when it is finished, with the
    `training.keep_checkpoints` that it needs.
    """
    written = read_config(run.config).training
    path = run.step(run.steps()[-1]) / SETTINGS
    config = read_config(path)
    later = {"grad_accum": written.grad_accum, "average_last": written.average_last}
    if (written.average_last or 0) > config.training.keep_checkpoints:
        later["keep_checkpoints"] = written.keep_checkpoints
    training = config.training.model_copy(update=later)
    return config.model_copy(update={"training": training})


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `PARAMETER.KEY` (Adam: exp_avg, exp_avg_sq, step)."""
    return {
        f"{name}.{key}": value.detach()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The way back from `optimizer_tensors`."""
    held = (parameter for group in optimizer.param_groups for parameter in group["params"])
    order = {id(parameter): i for i, parameter in enumerate(held)}
    parameters = trained(model)
    states: dict[int, dict[str, Tensor]] = {}
    for full, value in tensors.items():
        name, _, key = full.rpartition(".")
        # What was read lies in the file, mapped into memory. On a CPU the optimizer would keep it there, and Windows
        # deletes no file that is mapped.
        kept = value.clone() if parameters[name].is_cpu else value
        states.setdefault(order[id(parameters[name])], {})[key] = kept
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def write_folder(final: Path, write: Callable[[Path], None], left: str = _WHOLE, then: str = _GO_ON) -> None:
    """Make the folder of a checkpoint with its manifest, whole or not at all, in place of one of the same name.

    Where the folder cannot be written, SaveError says what is `left` and what to do `then`.
    """
    aside = final.with_name(_ASIDE + final.name)

    def write_all(folder: Path) -> None:
        write(folder)
        write_manifest(folder, sorted(path.name for path in folder.iterdir()))

    def set_aside() -> None:
        if exists(final):  # the step is saved once more: a kill between the two renames must lose nothing
            os.rename(final, aside)

    try:
        make_folder(final, write_all, set_aside)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or error
        way = way_to_write(error, final.parent)
        raise SaveError(f"The checkpoint {final} could not be written: {reason}. {left}; {way} and {then}.") from error


def put_back(final: Path) -> None:
    """Put back an earlier folder of this name that was set aside when a kill came."""
    aside = final.with_name(_ASIDE + final.name)
    if exists(aside) and not exists(final):
        os.rename(aside, final)


def recover(run: RunFolder) -> None:
    """Put back a checkpoint that was set aside when a kill came; delete half-written ones."""
    for left in run.checkpoints.glob(f"{TEMPORARY}{STEP_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    for aside in run.checkpoints.glob(f"{_ASIDE}*"):
        put_back(aside.with_name(aside.name.removeprefix(_ASIDE)))
        shutil.rmtree(aside, ignore_errors=True)  # where the folder of its name is whole


def refuse_without_room(run: RunFolder, model: nn.Module, config: RunConfig) -> None:
    """UserError where the disk cannot hold all checkpoints that the run will have at once."""
    size, free = checkpoint_bytes(config, model), free_bytes(run.checkpoints)
    most = most_checkpoints(config)
    missing = most - len(regular_steps(run))
    if free < missing * size:
        raise UserError(
            f"The run will hold up to {most:,} checkpoints of {megabytes(size)}, of which {missing:,} are still to be "
            f"written, and where {run.path} lies {megabytes(free)} are free. Free some space, lower "
            "training.keep_checkpoints, or choose another place with --runs."
        )


def most_checkpoints(config: RunConfig) -> int:
    """On the disk at once: the newest, the best, and one that is being written, or an average, which is smaller. A
    short run never has as many newest ones as it would keep: it saves at regular steps, after its validations at most,
    before the first step and at the end.
    """
    training, every_steps = config.training, config.validation.every_steps
    newest = training.keep_checkpoints
    if training.max_steps is not None:
        regular = training.max_steps // training.checkpoint_every_steps
        newest = min(newest, regular + training.max_steps // (every_steps or 1) + 2)
    return newest + 2


def checkpoint_bytes(config: RunConfig, model: nn.Module) -> int:
    """The size of a checkpoint on the disk: weights, Adam's two means and its count of steps for each that is trained,
    and with `ema_decay` the weights beside their average.
    """
    weights, moved = dict[str, Tensor](model.named_parameters()), trained(model)
    counts = {name: torch.empty((), device="meta") for name in moved}
    beside = weights if config.training.ema_decay is not None else {}
    return bytes_of_files(config, weights, moved, moved, counts, beside)


def bytes_of_files(config: RunConfig, *tensors: Mapping[str, Tensor]) -> int:
    """The size of the files of a checkpoint that holds these tensors."""
    every = [(name, tensor) for each in tensors for name, tensor in each.items()]
    numbers = sum(tensor.numel() * tensor.element_size() for _, tensor in every)
    heads = sum(len(name) + _OF_A_TENSOR for name, _ in every)
    return numbers + heads + _OF_TEXT + len(dump_config(config).encode())


def free_bytes(path: Path) -> int:
    """The free space on the disk of `path`, which need not exist yet."""
    return shutil.disk_usage(what_exists_of(path)).free


def megabytes(num_bytes: int) -> str:
    """A size in words."""
    return f"{num_bytes / 1e6:,.{0 if num_bytes >= 1e7 else 1}f} MB"


def set_damaged_aside(run: RunFolder) -> list[str]:
    """Rename the damaged checkpoints that are newer than the newest whole one. Returns lines on what was wrong with
    them, and how many steps that costs.

    Raises UserError, and leaves everything as it was, where there are checkpoints and none is whole. Also where one
    cannot be read, because it may be whole.
    """
    steps = sorted(
        (int(number), path)
        for path in run.checkpoints.glob(f"{STEP_PREFIX}*")
        if (number := path.name.removeprefix(STEP_PREFIX)).isdecimal()
    )
    damaged: list[tuple[Path, str]] = []
    while steps:
        newest = steps[-1][1]
        try:
            check_manifest(
                newest,
                (WEIGHTS, OPTIMIZER, STATE, SETTINGS),
                f"Try again, or move {shlex.quote(str(newest))} away and go on from the checkpoint before it.",
            )
            break
        except DamagedError as error:
            damaged.append((steps.pop()[1], error.what))
    if not damaged:
        return []
    if not steps:
        raise UserError(
            f"None of the {len(damaged)} checkpoints of {run.path} is whole. {damaged[0][1]} "
            "Train from the start under another name (name=NEW)."
        )
    said = []
    for path, what in damaged:
        aside = path.with_name(f"{_DAMAGED}{path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(path, aside)
        said.append(f"warning: {what} It is now {aside}.")
    lost = int(damaged[0][0].name.removeprefix(STEP_PREFIX)) - steps[-1][0]
    again = counted(lost, "step is computed", "steps are computed")
    return [*said, f"going on from the newest whole checkpoint, {steps[-1][1]}: {again} again"]
