"""A batch's order changes nothing, nor who else is in the batch."""

from dataclasses import replace

from transformer_mt.training.proofs.passes import BOTH_WAYS, Pass, first_difference
from transformer_mt.training.proofs.subject import Failure, Subject, select


def batch_order(subject: Subject) -> Failure | None:
    """The sentences from behind, without the last one: a mean over the batch would be the same in any order."""
    batch = subject.batch
    backwards = list(range(len(batch.src) - 1))[::-1]
    if not backwards:
        return None  # a single pair has no order
    fewer = select(batch, backwards)
    for when, way in BOTH_WAYS.items():
        one = replace(Pass.whole(way, batch), order=backwards)
        if (where := first_difference(subject, one, Pass.whole(way, fewer))) is not None:
            return Failure(f"{when} a sentence depends on the others of its batch", where)
    return None
