"""Nothing after a position influences it: other tokens there change nothing before them."""

from dataclasses import replace

import torch

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.training.proofs.passes import BOTH_WAYS, Pass, first_difference
from transformer_mt.training.proofs.subject import Failure, Subject, lengths

FIRST_WORD = 4  # ids below are special


def causality(subject: Subject) -> Failure | None:
    """The second half of each target gets other words."""
    batch, num_words = subject.batch, subject.model.output.out_features - FIRST_WORD
    at = torch.arange(batch.tgt_in.size(1), device=subject.device)[None]
    real, earlier = batch.tgt_in != PAD_ID, at < (lengths(batch) // 2).clamp(min=1)[:, None]
    others = FIRST_WORD + (batch.tgt_in - FIRST_WORD + 1) % num_words
    changed = replace(batch, tgt_in=torch.where(real & ~earlier, others, batch.tgt_in))
    for when, way in BOTH_WAYS.items():
        one, other = (replace(Pass.whole(way, each), kept=real & earlier) for each in (batch, changed))
        if (where := first_difference(subject, one, other)) is not None:
            return Failure(f"{when} a position depends on later ones", where)
    return None
