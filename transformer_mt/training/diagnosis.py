"""After an update that was not finite: where in the model it went wrong, and the files to look into it with."""

from pathlib import Path

import torch
from safetensors import SafetensorError

from transformer_mt.config.run_folder import RunFolder
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.model.cpu.dropout import draws_with_numba
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.micro_batch import dropout_seed
from transformer_mt.training.not_finite import ADVICE, NotFiniteError
from transformer_mt.training.replay import finding, replay
from transformer_mt.training.update_record import PartRecord, UpdateRecord, weights_path, write_record, write_weights
from transformer_mt.training.updates import Updater


def diagnose(error: NotFiniteError, updater: Updater, model: TranslationModel, run: RunFolder) -> UserError:
    """Replay the update on the updater's whole model, write it and the weights to the run's `debug` folder, and say all
    of it in one error.
    """
    found = _finding(error, updater, model)
    path = run.debug / f"step_{error.step}.safetensors"
    files = _write(path, error, updater, model, run, found)
    precision = "" if updater.precision == "fp32" else " Or set training.precision: fp32."
    return UserError(f"{error.outcome}\n{found}\n{files}\n{ADVICE}{precision}{_too_late(error, run)}")


def _too_late(error: NotFiniteError, run: RunFolder) -> str:
    """Where these very weights are those of the newest checkpoint, no rate helps a run that goes on from it."""
    steps = run.steps()
    if not steps or steps[-1] != error.step - 1:
        return ""
    way_out = f"To go on from {run.step(steps[-2])}, move it away." if steps[:-1] else "It is the only one: train anew."
    return (
        f"\nThe newest checkpoint, {run.step(steps[-1])}, has these weights already: for it a lower rate comes too late"
        f". {way_out}"
    )


def _finding(error: NotFiniteError, updater: Updater, model: TranslationModel) -> str:
    try:
        found = replay(
            model,
            [error.split.batch(part.rows) for part in error.parts],
            [dropout_seed(updater.seed, error.step, part.index, part.number) for part in error.parts],
            error.num_tokens,
            updater.precision,
            updater.config.label_smoothing,
            error.loss_scale,
        )
    except Exception as failure:
        if not is_out_of_memory(failure):
            raise
        return "Where it went wrong was not found: there was no memory to compute it once more."
    return finding(found, _origins(error))


def _origins(error: NotFiniteError) -> list[list[str]]:
    """Where the pairs of each part stand."""
    return [[error.split.where(int(row)) for row in part.rows] for part in error.parts]


def _write(
    path: Path, error: NotFiniteError, updater: Updater, model: TranslationModel, run: RunFolder, found: str
) -> str:
    """Both files, or as much of them as the disk takes; returns a sentence on what there is."""
    steps = run.steps()
    record = UpdateRecord(
        reason=error.reason,
        finding=found,
        step=error.step,
        seed=updater.seed,
        precision=updater.precision,
        label_smoothing=updater.config.label_smoothing,
        loss_scale=error.loss_scale,
        num_tokens=error.num_tokens,
        device=str(updater.device),
        num_threads=torch.get_num_threads(),
        torch_version=str(torch.__version__),
        numba=draws_with_numba(updater.device),
        unpadded=updater.goes_unpadded,
        checkpoint=steps[-1] if steps else None,
        parts=[
            PartRecord(index=part.index, number=part.number, origins=origins)
            for part, origins in zip(error.parts, _origins(error), strict=True)
        ],
    )
    try:
        write_record(path, record, [error.split.batch(part.rows) for part in error.parts])
    except OSError as failure:
        return f"The update could not be kept: {failure.strerror or failure}."
    weights = f"the weights in {weights_path(path).name} beside it"
    try:
        write_weights(path, model)
    except (OSError, SafetensorError) as failure:
        weights = f"its weights could not be kept ({getattr(failure, 'strerror', None) or failure})"
    return f"The update is in {path}, {weights}. Replay it: tmt debug batch {path} --run {run.quoted}"
