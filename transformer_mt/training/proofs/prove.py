"""All proofs, one after the other, and what a person is told of them."""

import time
from collections.abc import Callable
from typing import NamedTuple

from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.proofs.agreements import batch_order, cache, causality, padding
from transformer_mt.training.proofs.gradients import gradients
from transformer_mt.training.proofs.loss import loss_falls
from transformer_mt.training.proofs.subject import Failure, Subject, few_pairs, subject
from transformer_mt.training.updates import Updater


class Proof(NamedTuple):
    """An entry of `PROOFS`: the law that is proved, in words, and the proof: None, or what does not hold. `of_encoder`
    says whether it is one of an encoder alone, too, which has no target that is written and no search.
    """

    law: str
    prove: Callable[[Subject], Failure | None]
    of_encoder: bool = False


PROOFS = {
    "causality": Proof("nothing after a position influences it", causality),
    "padding": Proof("padding changes nothing", padding),
    "cache": Proof("cache and full pass agree", cache),
    "batch order": Proof("the order of a batch changes nothing", batch_order),
    "gradients": Proof("gradients reach every parameter", gradients, of_encoder=True),
    "loss": Proof("the loss falls on one batch", loss_falls, of_encoder=True),
}
OFF = "proofs: off, as training.proofs says"


def prove(updater: Updater, split: TrainingSplit, micro_batches: list[Rows], stops: bool) -> str:
    """Prove all laws on the updater's model and a few of the planned pairs, and change nothing. Returns a line on it.
    All processes call this, and the first one proves. A law that does not hold raises UserError if `stops`; otherwise
    the line is a warning.
    """
    with updater.whole_model() as model:
        return updater.world.first(lambda: _prove(updater, model, split, micro_batches, stops), patient=True)


def _prove(
    updater: Updater, model: TranslationModel, split: TrainingSplit, micro_batches: list[Rows], stops: bool
) -> str:
    start = time.perf_counter()
    batch = few_pairs(split, micro_batches)
    try:
        with subject(updater, model, batch) as found:
            failed = first_failure(found)
        # Rounding may send a token to another expert, though seldom. A mistake shows itself with other pairs too.
        if failed and updater.model.config.num_experts > 1:
            with subject(updater, model, few_pairs(split, micro_batches, skipped=1)) as other:
                failed = first_failure(other)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return "proofs: none, for memory has no room for a second copy of the model and its gradient"
    if failed is None:
        *names, last = proofs_of(model)
        seconds = time.perf_counter() - start
        return f"proofs: {', '.join(names)} and {last} hold, on {len(batch.src)} pairs ({seconds:.1f} s)"
    name, (what, where) = failed
    said = f"It does not hold that {PROOFS[name].law} (the proof of {name}): {what}. This begins in {where}."
    if stops:
        raise UserError(f"{said} Mend that, or train nevertheless with training.proofs: warn.")
    return f"warning: {said} Training goes on, as training.proofs says."


def proofs_of(model: TranslationModel) -> dict[str, Proof]:
    """Those that a model of this architecture has."""
    is_alone = model.config.architecture == "encoder_only"
    return {name: proof for name, proof in PROOFS.items() if proof.of_encoder or not is_alone}


def first_failure(found: Subject) -> tuple[str, Failure] | None:
    """The first law that does not hold, and how."""
    for name, proof in proofs_of(found.model).items():
        if (failure := proof.prove(found)) is not None:
            return name, failure
    return None
