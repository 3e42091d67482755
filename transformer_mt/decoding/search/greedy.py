"""Greedy search, and what every search shares: `StepFunction` and `Hypothesis`.

It knows no model class: it is given a `StepFunction`.

A hypothesis ends with EOS, which counts in its length and its log-probability. PAD and BOS are never generated, and UNK
only if allowed. Their probability is not shared out, so that a score is the teacher-forced score of the same tokens. A
sentence has a largest length; the token at that length is EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Hypotheses, Rules
from transformer_mt.decoding.search.top_tokens import best_extensions, best_token


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
    """One finished translation. `tokens` are without EOS; `log_prob` is the sum over them and EOS; `score` is
    `log_prob` divided by the length norm. Both are nan where nobody asked for scores.
    """

    tokens: list[int]
    log_prob: float
    score: float


def greedy_search(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """The likeliest token at every step. One list of one hypothesis a sentence; `max_lengths` count EOS.

    Unless `options` ask for scores, log_prob and score are nan, which saves a pass over the vocabulary.
    """
    limits = torch.tensor(max_lengths, device=device)
    shortest = min(max_lengths)
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    alive = torch.arange(len(max_lengths), device=device)  # the sentence of each row
    tokens = torch.full_like(alive, BOS_ID)
    history = alive.new_empty(len(alive), min(16, max(max_lengths)))
    totals = torch.full((len(alive),), 0.0 if options.scored else torch.nan, device=device)
    over: Tensor | None = None  # which rows have ended, and are still there
    for length in count(1):
        logits = decoder.step(tokens).float()
        must_end = limits <= length if length >= shortest else None
        forbid = None if rules is None else partial(rules, hypotheses=Hypotheses(history[:, : length - 1], alive))
        if options.scored:
            best, _, tokens = best_extensions(logits, 1, options.allow_unk, must_end, totals[:, None], forbid)
            tokens, best = tokens.squeeze(1), best.squeeze(1)
            totals = best if over is None else torch.where(over, totals, best)
        else:
            tokens = best_token(logits, options.allow_unk, must_end, forbid)
        if over is not None:
            tokens = tokens.masked_fill(over, EOS_ID)
        if length > history.size(1):
            history = torch.cat((history, torch.empty_like(history)), dim=1)
        history[:, length - 1] = tokens
        ended = tokens == EOS_ID
        num_ended = int(ended.sum())
        if not num_ended or not are_dropped(num_ended, len(alive), device):
            over = ended if num_ended else None
            continue
        for sentence, row, total in zip(
            alive[ended].tolist(), history[ended, :length].tolist(), totals[ended].tolist(), strict=True
        ):
            end = row.index(EOS_ID)
            finished[sentence].append(Hypothesis(row[:end], total, total / options.norm(end + 1)))
        if num_ended == len(alive):
            break
        over, kept = None, without(ended)
        decoder.reorder(kept, kept)
        alive, tokens, totals, history, limits = (x[kept] for x in (alive, tokens, totals, history, limits))
    return finished


def are_dropped(num_ended: int, num_rows: int, device: torch.device) -> bool:
    """Whether rows that have ended are taken out now. On a CPU each row costs time. On a GPU a step has a power of two
    of them in any case, and taking some out means to wait for it several times.
    """
    num_live = num_rows - num_ended
    return device.type == "cpu" or num_live == 0 or (num_live - 1).bit_length() < (num_rows - 1).bit_length()


def without(ended: Tensor) -> Tensor:
    """The places that have not ended, of which the last fill the gaps of the ended ones, so that few change their
    place.

    ended (places,) -> (places that have not ended,).
    """
    live = (~ended).nonzero().squeeze(1)
    kept = torch.arange(len(live), device=ended.device)
    gaps = ended[: len(live)].nonzero().squeeze(1)
    kept[gaps] = live[len(live) - len(gaps) :]
    return kept
