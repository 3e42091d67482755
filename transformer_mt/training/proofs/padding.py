"""Padding changes nothing: the same sentences with more of it give the same."""

from transformer_mt.training.proofs.passes import BOTH_WAYS, Pass, first_difference
from transformer_mt.training.proofs.subject import Failure, Subject

MORE = 3  # columns on each side, so that their lengths still differ


def padding(subject: Subject) -> Failure | None:
    """Some columns more, as far as the model has positions."""
    batch, max_len = subject.batch, subject.model.config.max_len
    room = max_len - max(batch.src.size(1), batch.tgt_in.size(1))
    more = max(0, min(MORE, room))
    widened = batch.widened(more, more)
    for when, way in BOTH_WAYS.items():
        if (where := first_difference(subject, Pass.whole(way, batch), Pass.whole(way, widened))) is not None:
            return Failure(f"{when} padding changes the result", where)
    return None
