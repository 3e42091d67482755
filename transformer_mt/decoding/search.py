"""What every search shares, and greedy search. Knows no model class: it is given a `StepFunction`.

Rules of every search here. A hypothesis ends with EOS, which counts in its length and its log-probability. PAD, BOS
and, unless allowed, UNK are never generated; their probability is not shared out, so that a score is the
teacher-forced score of the same tokens. A sentence has a largest length; the token at that length is EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.errors import UserError


class StepFunction(Protocol):
    """A decoder in the middle of a batch: rows of unfinished hypotheses, those of a sentence together."""

    def step(self, tokens: Tensor) -> Tensor:
        """Feed the newest token of each row (rows,); return the logits of the next (rows, vocab_size)."""
        ...

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """Let new row i continue old row index[i]; `sentences` are the old sentences kept, None for all."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """One finished translation. `tokens` are without EOS; `log_prob` is the sum over them and EOS."""

    tokens: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class LengthNorm:
    """What a log-probability is divided by, for a hypothesis of `length` tokens, EOS counted."""

    kind: str = "gnmt"
    alpha: float = 0.0

    def __call__(self, length: int) -> float:
        """`gnmt`: ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); `average`: length^alpha."""
        return LENGTH_NORMS[self.kind](length) ** self.alpha


LENGTH_NORMS = {
    "gnmt": lambda length: (5 + length) / 6,
    "average": lambda length: float(length),
}


def allowed_log_probs(logits: Tensor, allow_unk: bool, must_end: Tensor) -> Tensor:
    """Log-probabilities of what may come next, -inf elsewhere.

    logits (rows, vocab_size); must_end (rows,) marks rows at their largest length, where only EOS may come.
    """
    log_probs = logits.float().log_softmax(dim=-1)
    forbidden = [PAD_ID, BOS_ID] if allow_unk else [PAD_ID, BOS_ID, UNK_ID]
    log_probs[:, forbidden] = -torch.inf
    if must_end.any():
        end = log_probs[must_end, EOS_ID]
        log_probs[must_end] = -torch.inf
        log_probs[must_end, EOS_ID] = end
    return log_probs


def refuse_nan(scores: Tensor) -> None:
    """UserError where a model's output is not a number: such a search would find nothing and not end."""
    if scores.isnan().any():
        raise UserError(
            "The model's output is not a number. Use --precision fp32, or an earlier checkpoint (--checkpoint step_N)."
        )


def greedy_search(
    decoder: StepFunction, max_lengths: Sequence[int], norm: LengthNorm, allow_unk: bool, device: torch.device
) -> list[list[Hypothesis]]:
    """The likeliest token at every step. One list of one hypothesis a sentence; `max_lengths` count EOS."""
    limits = torch.tensor(max_lengths, device=device)
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    alive = torch.arange(len(max_lengths), device=device)  # the sentence of each row
    tokens = torch.full_like(alive, BOS_ID)
    history = alive.new_empty(len(alive), 0)
    totals = torch.zeros(len(alive), device=device)
    for length in count(1):
        log_probs = allowed_log_probs(decoder.step(tokens), allow_unk, limits <= length)
        best, tokens = log_probs.max(dim=-1)
        totals = totals + best
        refuse_nan(totals)
        ended = tokens == EOS_ID
        if ended.any():
            for sentence, row, total in zip(
                alive[ended].tolist(), history[ended].tolist(), totals[ended].tolist(), strict=True
            ):
                finished[sentence].append(Hypothesis(row, total, total / norm(length)))
            kept = (~ended).nonzero().squeeze(1)
            if len(kept) == 0:
                break
            decoder.reorder(kept, kept)
            alive, tokens, totals, history, limits = (x[kept] for x in (alive, tokens, totals, history, limits))
        history = torch.cat((history, tokens[:, None]), dim=1)
    return finished
