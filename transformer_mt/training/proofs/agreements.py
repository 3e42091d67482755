"""Passes that must agree: neither later tokens nor padding, the rest of the batch or a cache change the result."""

from dataclasses import replace

import torch

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.training.proofs.passes import BOTH_WAYS, Pass, as_scored, as_searched, first_difference
from transformer_mt.training.proofs.subject import Failure, Subject, lengths, select

FIRST_WORD = 4  # ids below are special
MORE = 3  # columns of padding on each side, so that their lengths still differ


def causality(subject: Subject) -> Failure | None:
    """The second half of each target gets other words."""
    batch, num_words = subject.batch, subject.model.output.out_features - FIRST_WORD
    at = torch.arange(batch.tgt_in.size(1), device=subject.device)[None]
    real, earlier = batch.tgt_in != PAD_ID, at < (lengths(batch) // 2).clamp(min=1)[:, None]
    others = FIRST_WORD + (batch.tgt_in - FIRST_WORD + 1) % num_words
    changed = replace(batch, tgt_in=torch.where(real & ~earlier, others, batch.tgt_in))
    one, other = (replace(Pass.whole(as_scored, each), kept=real & earlier) for each in (batch, changed))
    return _both_ways(subject, one, other, "a position depends on later ones")


def padding(subject: Subject) -> Failure | None:
    """Some columns more, as far as the model has positions."""
    batch, max_len = subject.batch, subject.model.config.max_len
    room = max_len - max(batch.src.size(1), batch.tgt_in.size(1))
    more = max(0, min(MORE, room))
    one, other = (Pass.whole(as_scored, each) for each in (batch, batch.widened(more, more)))
    return _both_ways(subject, one, other, "padding changes the result")


def batch_order(subject: Subject) -> Failure | None:
    """The sentences from behind, without the last one: a mean over the batch would be the same in any order."""
    batch = subject.batch
    backwards = list(range(len(batch.src) - 1))[::-1]
    if not backwards:
        return None  # a single pair has no order
    one, other = (Pass.whole(as_scored, each) for each in (batch, select(batch, backwards)))
    return _both_ways(subject, replace(one, order=backwards), other, "a sentence depends on the others of its batch")


def cache(subject: Subject) -> Failure | None:
    """The targets of the batch, token by token."""
    one, other = (Pass.whole(way, subject.batch) for way in (as_scored, as_searched))
    if (where := first_difference(subject, one, other)) is None:
        return None
    return Failure("a search, which decodes step by step over its cache, computes something else than scoring", where)


def _both_ways(subject: Subject, one: Pass, other: Pass, what: str) -> Failure | None:
    """The failure where the two differ by the way of training, or by that of scoring; theirs is not looked at."""
    for when, way in BOTH_WAYS.items():
        if (where := first_difference(subject, replace(one, way=way), replace(other, way=way))) is not None:
            return Failure(f"{when} {what}", where)
    return None
