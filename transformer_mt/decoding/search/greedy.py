"""Greedy search, and what every search shares: `StepFunction` and `Hypothesis`.

It knows no model class: it is given a `StepFunction`.

A hypothesis ends with EOS, which counts in its length and its log-probability. PAD and BOS are never generated, and UNK
only if allowed. Their probability is not shared out, so that a score is the teacher-forced score of the same tokens. A
sentence has a largest length; the token at that length is EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.decoding.search.greedy_rows import Choice, ChoosesItself, GreedyRows, Report
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Hypotheses, Rules


class StepFunction(Protocol):
    """A decoder in the middle of a batch: rows of unfinished hypotheses, those of a sentence together."""

    def step(self, tokens: Tensor) -> Tensor:
        """Feed the newest token of each row (rows,); return the logits of the next (rows, vocab_size). The search may
        write on both afterwards.
        """
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
    rows = GreedyRows.begin(torch.tensor(max_lengths, device=device), max(max_lengths), options.scored)
    choice = Choice(options.allow_unk, options.scored)
    choosing = decoder.choosing(rows, choice) if rules is None and isinstance(decoder, ChoosesItself) else None
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    alive = torch.arange(len(max_lengths), device=device)  # the sentence of each row

    def step(length: int) -> Report:
        if choosing is not None:
            return Report.of(choosing())
        past = Hypotheses(rows.history[:, : length - 1], alive)
        forbid = None if rules is None else partial(rules, hypotheses=past)
        return Report.of(rows.choose(decoder.step(rows.tokens), choice, forbid))

    longest = max(max_lengths)
    length, ahead = 0, None
    while True:
        length, report = length + 1, ahead or step(length + 1)
        # What a decoder chooses by itself goes on while this is read. A row that has ended stays as it is.
        ahead = step(length + 1) if choosing is not None and length < longest else None
        num_live = report.num_live()
        if not are_dropped(len(alive) - num_live, len(alive), device):
            continue
        if ahead is not None:  # the rows are one token further
            length, num_live, ahead = length + 1, ahead.num_live(), None
        ended = rows.is_over
        for sentence, row, total in zip(
            alive[ended].tolist(), rows.history[ended, :length].tolist(), rows.totals[ended].tolist(), strict=True
        ):
            end = row.index(EOS_ID)
            finished[sentence].append(Hypothesis(row[:end], total, total / options.norm(end + 1)))
        if not num_live:
            break
        kept = without(ended)
        decoder.reorder(kept, kept)
        alive = alive[kept]
        rows.keep(kept, length)
    return finished


def are_dropped(num_ended: int, num_rows: int, device: torch.device) -> bool:
    """Whether what has ended is taken out now: rows, or the sentences of a beam. On a CPU each costs time. On a GPU
    they cost little, and with graphs a step has a power of two of them in any case; but to take some out a process
    waits for it several times.
    """
    if not num_ended:
        return False
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
