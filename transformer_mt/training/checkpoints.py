"""Checkpoints: folders written beside their final name, synced, then renamed: a half-written one is never seen.

    checkpoints/step_N/model.safetensors, optimizer.safetensors, state.json, settings.yaml, and manifest.json (sizes,
    hashes) last

The newest checkpoint is `last`; its state names the `best` step, whose folder is kept too. There is no pickle.
"""

import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from transformer_mt.config.files import TEMPORARY, make_folder, way_to_write
from transformer_mt.config.loading import dump_config, load_config
from transformer_mt.config.manifest import DamagedError, check_manifest, write_manifest
from transformer_mt.config.run_folder import STEP_PREFIX, RunFolder
from transformer_mt.config.schema import RunConfig
from transformer_mt.decoding.checkpoint import SETTINGS, STATE, WEIGHTS
from transformer_mt.decoding.weights import read_tensors, read_weights, save_tensors
from transformer_mt.errors import UserError
from transformer_mt.training.state import TrainingState

OPTIMIZER = "optimizer.safetensors"
_ASIDE = ".aside-"
_WHOLE = "The checkpoints before it are whole"
_GO_ON = "go on with --resume"
_DAMAGED = "damaged_"


class SaveError(UserError):
    """A checkpoint could not be written; those before it are whole."""


def check_folder(run: RunFolder, step: int) -> None:
    """SaveError where it is gone: to make it anew would cut the run in two, its config there and the new step here."""
    if not run.path.is_dir():
        raise SaveError(
            f"The checkpoint {run.step(step)} could not be written: the folder {run.path} was moved or deleted while "
            f"this training wrote to it. {_WHOLE}; put the folder back and {_GO_ON}."
        )


def save_checkpoint(
    run: RunFolder, weights: dict[str, Tensor], moments: dict[str, Tensor], state: TrainingState, config: RunConfig
) -> Path:
    """Write `step_N`, then delete all but the newest that the config keeps and the best. SaveError where it cannot be
    written.

    `weights` are as `unique_weights` names them, `moments` as `optimizer_tensors` does.
    """

    def write(folder: Path) -> None:
        save_tensors(weights, folder / WEIGHTS)
        save_tensors(moments, folder / OPTIMIZER)
        state.write(folder / STATE)
        (folder / SETTINGS).write_text(dump_config(config), encoding="utf-8")

    final = run.step(state.step)
    needed, free = checkpoint_bytes(weights.values()), free_bytes(run.checkpoints)
    if free < needed:
        raise SaveError(
            f"There is no room for the checkpoint {final}: it needs {megabytes(needed)}, and {megabytes(free)} are "
            f"free. {_WHOLE}; free some space and {_GO_ON}."
        )
    write_folder(final, write)
    remove_superfluous(run, state.best_step, config.training.keep_checkpoints)
    return final


def remove_superfluous(run: RunFolder, best_step: int | None, keep: int) -> None:
    """Delete all checkpoints but the newest `keep` and the best."""
    for step in run.steps()[:-keep]:
        if step != best_step:
            remove_folder(run.step(step))


def read_checkpoint(run: RunFolder, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and moments of the newest checkpoint, which `set_damaged_aside` has seen. UserError where they are not
    those of this model.
    """
    folder = run.step(run.steps()[-1])
    return read_weights(model, folder / WEIGHTS), read_tensors(folder / OPTIMIZER)


def settings_so_far(run: RunFolder) -> RunConfig:
    """The settings with which the newest checkpoint was trained, which `set_damaged_aside` has seen, whoever has edited
    the run's `config.yaml` since.

    Of that file only `training.grad_accum` is taken: what was asked for, whatever several processes made of it.
    """
    written = load_config(str(run.config.resolve())).config
    path = run.step(run.steps()[-1]) / SETTINGS
    config = load_config(str(path.resolve())).config
    training = config.training.model_copy(update={"grad_accum": written.training.grad_accum})
    return config.model_copy(update={"training": training})


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `PARAMETER.KEY` (Adam: exp_avg, exp_avg_sq, step)."""
    return {
        f"{name}.{key}": value.detach()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The way back from `optimizer_tensors`. The optimizer must hold the model's parameters in their own order."""
    places = {name: i for i, (name, _) in enumerate(model.named_parameters())}
    states: dict[int, dict[str, Tensor]] = {}
    for full, value in tensors.items():
        name, _, key = full.rpartition(".")
        states.setdefault(places[name], {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def write_folder(final: Path, write: Callable[[Path], None], left: str = _WHOLE, then: str = _GO_ON) -> None:
    """Make the folder of a checkpoint whole or not at all, with its manifest, in place of one of the same name.

    Where it cannot be written, SaveError with what is `left` and what to do `then`.
    """
    aside = final.with_name(_ASIDE + final.name)

    def write_all(folder: Path) -> None:
        write(folder)
        write_manifest(folder, sorted(path.name for path in folder.iterdir()))

    def set_aside() -> None:
        if final.exists():  # the same step once more; a kill between the renames loses nothing
            os.rename(final, aside)

    try:
        make_folder(final, write_all, set_aside)
        shutil.rmtree(aside, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        way = way_to_write(error, final.parent)
        raise SaveError(f"The checkpoint {final} could not be written: {reason}. {left}; {way} and {then}.") from error


def sweep_half_written(final: Path) -> None:
    """Delete what kills left of writing this folder, an hour ago or more: a process may be writing it now. Put back an
    earlier one that was set aside.
    """
    for left in final.parent.glob(f"{TEMPORARY}{final.name}-*"):
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    aside = final.with_name(_ASIDE + final.name)
    if aside.exists() and not final.exists():
        os.rename(aside, final)


def recover(run: RunFolder) -> None:
    """Put back a checkpoint that a kill caught between being set aside and being replaced; sweep half-written ones."""
    for left in run.checkpoints.glob(f"{TEMPORARY}{STEP_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    for aside in run.checkpoints.glob(f"{_ASIDE}*"):
        final = aside.with_name(aside.name.removeprefix(_ASIDE))
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(aside, final)


def refuse_without_room(run: RunFolder, model: nn.Module, keep: int) -> None:
    """UserError where the disk cannot hold what the run will: the newest `keep`, the best, and one being written."""
    size, free = checkpoint_bytes(model.parameters()), free_bytes(run.checkpoints)
    missing = keep + 2 - len(run.steps())
    if free < missing * size:
        raise UserError(
            f"The run will hold up to {keep + 2} checkpoints of {megabytes(size)}, and where {run.path} lies "
            f"{megabytes(free)} are free. Free some space, lower training.keep_checkpoints, or choose another place "
            "with --runs."
        )


def checkpoint_bytes(weights: Iterable[Tensor]) -> int:
    """What a checkpoint weighs on disk: the weights, Adam's two means of each, and some text."""
    return 3 * sum(weight.numel() * weight.element_size() for weight in weights) + 2**18


def free_bytes(path: Path) -> int:
    """Free space on the disk that `path` lies on or will lie on."""
    place = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return shutil.disk_usage(place).free


def megabytes(num_bytes: int) -> str:
    """For a person to read."""
    return f"{num_bytes / 1e6:,.0f} MB"


def set_damaged_aside(run: RunFolder) -> list[str]:
    """Leave the newest whole checkpoint as the newest; say what was wrong with those after it and what that costs.

    They are renamed, not deleted. Raises UserError, with everything as it was, where there are checkpoints and none is
    whole, and where one cannot be read, which may well be whole.
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
    return [*said, f"going on from the newest whole checkpoint, {steps[-1][1]}: {lost:,} steps are computed again"]


def remove_folder(folder: Path) -> None:
    """Delete a checkpoint; renamed first, so that a kill in the middle leaves nothing that looks whole."""
    rubbish = folder.with_name(f"{TEMPORARY}{folder.name}-{secrets.token_hex(4)}")
    os.rename(folder, rubbish)
    shutil.rmtree(rubbish, ignore_errors=True)
