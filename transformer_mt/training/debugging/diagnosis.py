"""The diagnosis of an update that was not finite: where in the model it went wrong, and files for a replay."""

from pathlib import Path

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.data.batches.batching import Batch
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.debugging.not_finite import ADVICE, NotFiniteError
from transformer_mt.training.debugging.replay import finding, replay
from transformer_mt.training.debugging.update_record import (
    PartRecord,
    UpdateRecord,
    weights_path,
    write_record,
    write_weights,
)
from transformer_mt.training.micro_batch import computed_with
from transformer_mt.training.updates import Updater


def diagnose(error: NotFiniteError, updater: Updater, model: TranslationModel, run: RunFolder) -> UserError:
    """Replay the update on the whole model, write update and weights to the run's `debug` folder, and return one error
    that says all of it.
    """
    batches = [error.split.batch(part.rows) for part in error.parts]
    record = UpdateRecord(
        reason=error.reason,
        finding="Where it went wrong was not found: there was no memory to compute it once more.",
        step=error.step,
        seed=updater.seed,
        label_smoothing=updater.config.label_smoothing,
        prior=None if updater.prior is None else updater.prior.tolist(),
        consistency=updater.config.consistency_at(error.step),
        loss_scale=error.loss_scale,
        num_tokens=error.num_tokens,
        computed_with={**computed_with(model, updater.precision), "compiled": updater.compiled is not None},
        parts=[
            PartRecord(index=part.index, number=part.number, origins=[error.split.where(int(row)) for row in part.rows])
            for part in error.parts
        ],
    )
    try:
        found = replay(model, record, batches, updater.precision)
        other = "" if updater.compiled is None else " The update was compiled, and its dropout dropped other elements."
        record = record.model_copy(update={"finding": finding(found) + other})
    except Exception as failure:
        if not is_out_of_memory(failure):
            raise
    files = _write(run.update_file(error.step), record, batches, model, run)
    precision = "" if updater.precision == "fp32" else " Or set training.precision: fp32."
    advice = f"{_heavy_terms(updater, error.step)}{ADVICE}{precision}"
    return UserError(f"{error.outcome}\n{record.finding}\n{files}\n{advice}{_too_late(error, run)}")


def _heavy_terms(updater: Updater, step: int) -> str:
    """A sentence on each term of the loss whose weight is above the usual one: no rate makes such a loss finite."""
    terms = []
    if (consistency := updater.config.consistency_at(step)) is not None:
        terms.append(("training.consistency.alpha", consistency.weight, consistency.pair_loss.alpha))
    if (model := updater.model.config).num_experts > 1:
        usual = ModelConfig.model_fields["load_balancing_weight"].default
        terms.append(("model.load_balancing_weight", model.load_balancing_weight, usual))
    return "".join(
        f"First lower {key}, which is {weight:g} and by default {usual:g}. "
        for key, weight, usual in terms
        if weight > usual
    )


def _too_late(error: NotFiniteError, run: RunFolder) -> str:
    """A warning where the newest checkpoint has these very weights: no rate helps a run that goes on from it."""
    steps = run.steps()
    if not steps or steps[-1] != error.step - 1:
        return ""
    way_out = f"To go on from {run.step(steps[-2])}, move it away." if steps[:-1] else "It is the only one: train anew."
    return (
        f"\nThe newest checkpoint, {run.step(steps[-1])}, has these weights already: for it a lower rate comes too late"
        f". {way_out}"
    )


def _write(path: Path, record: UpdateRecord, batches: list[Batch], model: TranslationModel, run: RunFolder) -> str:
    """Write both files, or as much of them as the disk takes. Returns a sentence on what was written."""
    try:
        write_record(path, record, batches)
    except OSError as failure:
        return f"The update could not be kept: {failure.strerror or failure}."
    weights = f"the weights in {weights_path(path).name} beside it"
    try:
        write_weights(path, model)
    except OSError as failure:
        weights = f"its weights could not be kept ({failure.strerror or failure})"
    return f"The update is in {path}, {weights}. Replay it: tmt debug batch {path} --run {run.quoted}"
