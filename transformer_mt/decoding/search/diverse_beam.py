"""Diverse beam search (Vijayakumar et al. 2016, algorithm 1), batched over sentences.

The beam is parted into groups, each a beam of its own. At every step the groups choose one after the other. A group
counts how often each token was taken by the groups before it at this step, and ranks a candidate by its log-probability
less `diverse_beam_strength` times the count of its token (the Hamming diversity of section 4). Taken are the tokens of
the hypotheses that go on, and EOS for each that ends among the best. The count decides that step's ranking alone: what
a hypothesis carries on, and its score, are the model's own.

A group is done as a plain beam of its size is, and what it finds later does not count. It goes on all the same until
all groups of its sentence are done, because groups after it keep clear of its tokens. So the first group finds what a
plain beam of its size finds.
"""

from collections.abc import Sequence
from itertools import chain, count

import torch
from torch import Tensor

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.decoding.search.beam import Beams, count_done, follow
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, are_dropped, without
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Hypotheses, Rules
from transformer_mt.decoding.search.top_tokens import Totals, best_extensions


def diverse_beam_search(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """Up to `n_best` hypotheses a sentence, best score first. `max_lengths` count EOS.

    They are the best of what all groups found, up to `n_best` each; what several groups found counts once.
    """
    of_group, shortest = options.of_group, min(max_lengths)
    groups = [Beams.begin(max_lengths, of_group, device) for _ in range(options.diverse_beam_groups)]
    for length in count(1):
        # All groups begin with the same hypothesis, which is fed once.
        begun = groups[:1] if length == 1 else groups
        logits = decoder.step(torch.cat([beams.tokens[:, :, -1] for beams in begun], dim=1).flatten()).float()
        rows = groups[0].log_probs.size(1)
        must_end = groups[0].limits <= length if length >= shortest else None
        parents = _advance(groups, logits.unflatten(0, (-1, len(begun) * rows)), must_end, options, rules)
        for beams in groups:
            beams.judge()
        is_done = _are_done(groups)
        num_done = count_done(is_done, groups[0].is_bad)
        if num_done == len(is_done):
            return [_merged(found, options.n_best) for found in zip(*(b.finished.best() for b in groups), strict=True)]
        kept = without(is_done) if are_dropped(num_done, len(is_done), device) else None
        follow(decoder, groups, parents, len(begun) * rows, kept)
    raise AssertionError("a sentence has a largest length")


def _advance(
    groups: list[Beams], logits: Tensor, must_end: Tensor | None, options: SearchOptions, rules: Rules | None
) -> Tensor:
    """Extend the hypotheses of all groups by a token, one group after the other.

    logits (sentences, rows of one group or of all, vocab_size); must_end as in `best_extensions`. Returns the row of
    each new live hypothesis's parent among those of its sentence, (sentences, hypotheses of all groups).
    """
    of_group = options.of_group
    begun = groups[: logits.size(1) // groups[0].log_probs.size(1)]
    totals = Totals.of(logits, torch.cat([beams.log_probs for beams in begun], dim=1))
    groups[0].is_bad = totals.are_bad & ~_are_done(groups)
    if rules is not None:
        rules(logits.flatten(0, 1), hypotheses=_hypotheses(begun))
    parents: list[Tensor] = []
    taken = torch.zeros(len(logits), logits.size(2), device=logits.device)
    for number, beams in enumerate(groups):
        rows = beams.log_probs.size(1)
        first = number * rows % logits.size(1)
        own_rows = torch.arange(first, first + rows, device=logits.device).expand(len(logits), -1)
        own, own_totals = logits[:, first : first + rows], totals.at(own_rows)
        ranked = own if number == 0 else own - options.diverse_beam_strength * taken[:, None]
        values, origins, tokens = best_extensions(
            ranked, 2 * of_group.beam_size, options.allow_unk, must_end, own_totals
        )
        log_probs = own_totals.at(origins)(own.flatten(1).gather(1, origins * own.size(2) + tokens)[:, :, None])
        log_probs = log_probs.squeeze(2).masked_fill(values == -torch.inf, -torch.inf)
        kept, ended = beams.take(log_probs, origins, tokens, of_group)
        parents.append(first + kept)  # what every group has fed first stands in the rows of the first
        taken.scatter_add_(1, beams.tokens[:, :, -1], (beams.log_probs > -torch.inf).float())
        taken[:, EOS_ID] += ended.sum(dim=1)
    return torch.cat(parents, dim=1)


def _are_done(groups: list[Beams]) -> Tensor:
    """Whether all groups of a sentence are done (sentences,)."""
    return torch.stack([beams.is_done for beams in groups]).all(dim=0)


def _hypotheses(groups: list[Beams]) -> Hypotheses:
    """Those of all groups as rows, the rows of a sentence together."""
    tokens = torch.cat([beams.tokens for beams in groups], dim=1)
    return Hypotheses(tokens[:, :, 1:].flatten(0, 1), groups[0].sentences.repeat_interleave(tokens.size(1)))


def _merged(found: Sequence[list[Hypothesis]], n_best: int) -> list[Hypothesis]:
    """The best of all groups of a sentence, each once; of equal scores that of the earlier group comes first."""
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in chain.from_iterable(found):
        distinct.setdefault(tuple(hypothesis.tokens), hypothesis)
    return sorted(distinct.values(), key=lambda h: h.score, reverse=True)[:n_best]
