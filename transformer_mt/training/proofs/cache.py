"""Cache and full pass agree: one position after another gives what all at once give."""

from transformer_mt.training.proofs.passes import Pass, as_scored, as_searched, first_difference
from transformer_mt.training.proofs.subject import Failure, Subject


def cache(subject: Subject) -> Failure | None:
    """The targets of the batch, token by token."""
    one, other = (Pass.whole(way, subject.batch) for way in (as_scored, as_searched))
    if (where := first_difference(subject, one, other)) is None:
        return None
    return Failure("a search, which decodes step by step over its cache, computes something else than scoring", where)
