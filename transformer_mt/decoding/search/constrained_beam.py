"""Beam search for translations that hold given phrases: dynamic beam allocation (Post and Vilar 2018), with the places
dealt out by vectors (Hu et al. 2019).

The candidates of a step are the best extensions of all hypotheses, the best of each hypothesis, and the tokens with
which phrases begin and go on. They are parted into banks by how many tokens of the constraints they have written. The
places of the beam go to the best of each bank, the fullest bank first, then to the second best of each, and so on. So a
phrase that is unlikely does not compete with hypotheses that leave it out. Only a hypothesis with all phrases may end.

While others lack phrases, half of the beam at most may end at a step. So a sentence waits for half as many finished
hypotheses as in a plain beam. Live ones that lack more than a token of the phrases do not keep it waiting, however well
they stand: what they lack still lies before them.

There is a bank for each token of the constraints and one for none. A beam of fewer places would write every phrase at
once, wherever it belongs, and therefore grows to as many.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.decoding.search.beam import Beams, count_done, follow
from transformer_mt.decoding.search.constraints import Constraints, Progress
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, are_dropped, without
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Rules
from transformer_mt.decoding.search.top_tokens import BLOCK, Totals, best_extensions, largest_token, survey

LITTLE = 1  # tokens of phrases, which a hypothesis may lack and yet be compared as it stands
SHARE = 0.5  # of the finished hypotheses that a plain beam waits for
_LAST = torch.iinfo(torch.long).max  # a rank behind all others


@dataclass(frozen=True)
class Found:
    """The hypotheses of one sentence, best first. Where there are none, `unmet` are the numbers of the constraints that
    the one that came closest lacks, counted from 0.
    """

    hypotheses: list[Hypothesis]
    unmet: tuple[int, ...] = ()


@dataclass
class _Beams(Beams):
    """Beams with the constraints of their sentences."""

    constraints: Constraints
    sizes: Tensor  # places of each sentence (sentences,)
    progress: Progress
    missing: Tensor  # tokens of the constraints that are not written (sentences, rows_per_sentence)

    def rivals(self) -> Tensor:
        """All but those that lack much."""
        return self.log_probs.masked_fill(self.missing > LITTLE, -torch.inf)

    def keep(self, places: Tensor) -> None:
        """Drop all sentences but those at these places."""
        super().keep(places)
        self.constraints, self.progress = self.constraints.of_sentences(places), self.progress.of_sentences(places)
        self.sizes, self.missing = self.sizes[places], self.missing[places]


class _Candidates(NamedTuple):
    """Hypotheses and one more token each, all (sentences, any): log-probability, row of the hypothesis, token."""

    totals: Tensor
    parents: Tensor
    tokens: Tensor

    def at(self, places: Tensor) -> "_Candidates":
        return _Candidates(*(x.gather(1, places) for x in self))


def beam_sizes(constraints: Constraints, beam_size: int) -> Tensor:
    """The places that each sentence has in its beam (sentences,): `beam_size`, and one for each bank at least."""
    return (constraints.num_tokens + 1).clamp(min=beam_size)


def constrained_beam_search(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    constraints: Constraints,
    rules: Rules | None,
) -> list[Found]:
    """Up to `n_best` hypotheses a sentence, best score first, that hold all constraints. `max_lengths` count EOS."""
    beams = _Beams(
        **vars(Beams.begin(max_lengths, options.model_copy(update={"patience": options.patience * SHARE}), device)),
        constraints=constraints,
        sizes=beam_sizes(constraints, options.beam_size),
        progress=constraints.begin(),
        missing=constraints.num_tokens[:, None],
    )
    unmet: dict[int, tuple[int, ...]] = {}
    for length in count(1):
        logits = decoder.step(beams.tokens[:, :, -1].flatten()).float()
        rows_per_sentence, before = beams.log_probs.size(1), replace(beams)
        parents = _advance(beams, logits.unflatten(0, (-1, rows_per_sentence)), length, options, rules)
        beams.judge()
        num_done = count_done(beams.is_done, beams.is_bad)
        if num_done:
            for place in (beams.is_done & ~before.is_done & (beams.finished.counts == 0)).nonzero().flatten().tolist():
                unmet[int(beams.sentences[place])] = _closest(before, place)
        if num_done == len(beams.sentences):
            return [Found(found, unmet.get(sentence, ())) for sentence, found in enumerate(beams.finished.best())]
        kept = without(beams.is_done) if are_dropped(num_done, len(beams.sentences), device) else None
        follow(decoder, [beams], parents, rows_per_sentence, kept)
    raise AssertionError("a sentence has a largest length")


def _closest(beams: _Beams, place: int) -> tuple[int, ...]:
    """The constraints that the sentence's hypothesis with the fewest missing tokens has not met."""
    missing = beams.missing[place].masked_fill(beams.log_probs[place] == -torch.inf, _LAST)
    tokens = beams.tokens[place, int(missing.argmin()), 1:].tolist()
    return beams.constraints.placements.unmet(int(beams.sentences[place]), tokens)


def _advance(beams: _Beams, logits: Tensor, length: int, options: SearchOptions, rules: Rules | None) -> Tensor:
    """Extend all hypotheses to `length` tokens: finish what ends among the K best, keep the K best that go on.

    logits (sentences, rows_per_sentence, vocab_size). Returns the parent of each new live hypothesis within its
    sentence (sentences, K), where K is that of the sentence with the most.
    """
    found = _candidates(beams, logits, length, options, rules)
    last = beams.tokens[:, :, -1].gather(1, found.parents)
    progress = beams.constraints.advance(beams.progress.at(found.parents), last, found.tokens)
    missing = beams.constraints.missing(progress).masked_fill(found.tokens == EOS_ID, 0)
    _recognise(beams, found, missing)
    # What can no longer be written within the largest length is not begun.
    room = (beams.limits - 1 - length).clamp(min=0) + beams.constraints.num_shared
    fits = missing <= room[:, None]
    found = found._replace(totals=found.totals.masked_fill(~fits, -torch.inf))
    size = int(beams.sizes.max())
    order = _deal(found.totals, missing)[:, : 2 * size]
    found, progress, missing = found.at(order), progress.at(order), missing.gather(1, order)
    ranks = torch.arange(order.size(1), device=order.device)
    ends = (found.tokens == EOS_ID) & (found.totals > -torch.inf)
    beams.finish(found.totals, found.parents, ends & (ranks < beams.sizes[:, None]))
    live = ends.int().argsort(dim=1, stable=True)[:, :size]
    is_beyond = (ranks[: live.size(1)] >= beams.sizes[:, None]) | (live >= 2 * beams.sizes[:, None])
    dead = ends.gather(1, live) | is_beyond
    found, beams.progress, beams.missing = found.at(live), progress.at(live), missing.gather(1, live)
    beams.go_on(found.totals.masked_fill(dead, -torch.inf), found.parents, found.tokens)
    return found.parents


def _recognise(beams: _Beams, found: _Candidates, missing: Tensor) -> None:
    """Nothing is `missing` of a text that holds all constraints in a way that its progress does not see. Only those of
    sentences whose constraints touch are looked at.
    """
    placements = beams.constraints.placements
    if not any(placements.touch):
        return
    sentences = beams.sentences.tolist()
    touch = [placements.touch[sentence] for sentence in sentences]
    if not any(touch):
        return
    lacks = (missing > 0) & (found.totals > -torch.inf) & torch.tensor(touch, device=missing.device)[:, None]
    places, ranks = lacks.nonzero(as_tuple=True)
    histories = beams.tokens[places, found.parents[places, ranks], 1:]
    texts = torch.cat((histories, found.tokens[places, ranks, None]), dim=1).tolist()
    holds = [placements.holds_all(sentences[place], text) for place, text in zip(places.tolist(), texts, strict=True)]
    holds = torch.tensor(holds, dtype=torch.bool, device=missing.device)
    missing[places[holds], ranks[holds]] = 0


def _candidates(beams: _Beams, logits: Tensor, length: int, options: SearchOptions, rules: Rules | None) -> _Candidates:
    """The extensions that are looked at, each once: the others of its kind have -inf."""
    totals, maxima = survey(logits, beams.log_probs, BLOCK)
    beams.is_bad = totals.are_bad & ~beams.is_done
    if rules is not None:
        rules(logits.flatten(0, 1), beams.hypotheses())
        maxima = None
    logits[:, :, EOS_ID].masked_fill_(beams.missing > 0, -torch.inf)
    must_end = beams.limits <= length
    values, *best = best_extensions(logits, 2 * int(beams.sizes.max()), options.allow_unk, must_end, totals, maxima)
    is_beyond = torch.arange(values.size(1), device=values.device) >= 2 * beams.sizes[:, None]
    best = _Candidates(values.masked_fill(is_beyond, -torch.inf), *best)
    rows = torch.arange(logits.size(1), device=logits.device).expand(len(logits), -1)
    of_all = largest_token(logits.flatten(0, 1), options.allow_unk, None if maxima is None else maxima.flatten(0, 1))
    values, tokens = (x.view_as(rows) for x in of_all)
    of_rows = _Candidates(totals(values[:, :, None]).squeeze(2), rows, tokens)
    parts = (best, of_rows, _of_phrases(beams, logits, totals, rows))
    found = _Candidates(*(torch.cat(each, dim=1) for each in zip(*parts, strict=True)))
    keys = found.parents * logits.size(2) + found.tokens
    is_lost = _repeated(keys.masked_fill(found.totals == -torch.inf, -1))  # one that is lost stands for no other
    is_lost |= must_end[:, None] & (found.tokens != EOS_ID)
    return found._replace(totals=found.totals.masked_fill(is_lost, -torch.inf))


def _of_phrases(beams: _Beams, logits: Tensor, totals: Totals, rows: Tensor) -> _Candidates:
    """The extensions by which phrases begin and go on: as many places as the sentence with the most of them needs."""
    wanted = beams.constraints.next_tokens(beams.progress, beams.tokens[:, :, -1])
    values = totals(logits.gather(2, wanted.clamp(min=0))).masked_fill(wanted < 0, -torch.inf)
    found = _Candidates(values, rows[:, :, None].expand_as(wanted), wanted.clamp(min=0))
    found = _Candidates(*(x.flatten(1) for x in found))
    is_lost = found.totals == -torch.inf
    num_kept = is_lost.size(1) - int(is_lost.sum(dim=1).min())
    return found.at(is_lost.int().argsort(dim=1, stable=True)[:, :num_kept])


def _repeated(keys: Tensor) -> Tensor:
    """Which of a sentence's keys (sentences, any) stand there before."""
    ordered, order = keys.sort(dim=1, stable=True)
    is_same = torch.zeros_like(ordered, dtype=torch.bool)
    is_same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(is_same).scatter(1, order, is_same)


def _deal(totals: Tensor, missing: Tensor) -> Tensor:
    """The candidates in the order in which they get places: the best of each bank, the fullest bank first, then the
    second best of each, and so on; totals and missing tokens (sentences, any) -> places (sentences, any).
    """
    ordered, by_total = totals.sort(dim=1, descending=True, stable=True)
    banks, by_bank = missing.gather(1, by_total).sort(dim=1, stable=True)
    places = torch.arange(totals.size(1), device=totals.device).expand_as(banks)
    is_first = torch.ones_like(banks, dtype=torch.bool)
    is_first[:, 1:] = banks[:, 1:] != banks[:, :-1]
    ranks = places - torch.where(is_first, places, 0).cummax(dim=1).values
    keys = ranks * (banks.amax(dim=1, keepdim=True) + 1) + banks
    keys = keys.masked_fill(ordered.gather(1, by_bank) == -torch.inf, _LAST)
    return by_total.gather(1, by_bank.gather(1, keys.argsort(dim=1, stable=True)))
