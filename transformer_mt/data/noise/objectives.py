"""What pre-training hides of a line, and what a model must say of it, for many lines at once.

Each function is given the ids of lines one after the other, and draws from keys alone: a random number for each
position of each line, which is a function of the line's seed. Lines of unlike length are cut by ranks: the k smallest
keys of a line are k of its positions, each set of k as likely as any other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.sections.noise import NoiseConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.noise.bpe_dropout import split_mix

Ints = NDArray[np.int64]
Flat = tuple[Ints, Ints]  # ids of lines, one after the other, and how many each has

_LONGEST_SPAN = 40  # of the Poisson distribution: what lies beyond has no weight for any mean up to 10


@dataclass(frozen=True)
class Lines:
    """Some lines: ids, one line after the other, the length of each, and a seed for each (`line_seeds`)."""

    ids: Ints
    lengths: Ints
    seeds: Ints

    @cached_property
    def row(self) -> Ints:
        """For each id the number of its line."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def keys(self, draw: int, numbers: Ints) -> NDArray[np.uint64]:
        """`numbers` random numbers of 64 bits for each line, others for each `draw`."""
        row = np.repeat(np.arange(len(numbers)), numbers)
        at = (_places(numbers) + 1).astype(np.uint64) + np.uint64(draw << 40)
        return split_mix(self.seeds[row].astype(np.uint64), at)

    def chosen(self, draw: int, numbers: Ints, wanted: Ints) -> NDArray[np.bool_]:
        """Of so many places of each line, which ones are among its `wanted`."""
        keys = self.keys(draw, numbers)
        row = np.repeat(np.arange(len(numbers)), numbers)
        order = np.lexsort((keys, row))
        found = np.empty(len(keys), bool)
        found[order] = _places(numbers) < np.repeat(wanted, numbers)
        return found

    def parts(self, draw: int, totals: Ints, numbers: Ints) -> Ints:
        """Each total cut into so many parts of one or more, all ways alike: the parts' sizes, line after line. A line
        with a number of 0 has a total of 0.
        """
        # A part ends behind every unit that is chosen, and behind the last, for which there is no choice.
        units = np.maximum(totals - 1, 0)
        cuts = self.chosen(draw, units, np.maximum(numbers - 1, 0))
        row = np.repeat(np.arange(len(units)), units)[cuts]
        ends = np.concatenate([_places(units)[cuts] + 1, totals[numbers > 0]])
        of = np.concatenate([row, np.flatnonzero(numbers > 0)])
        ends = ends[np.lexsort((ends, of))]
        return np.diff(ends, prepend=0) + np.where(_places(numbers) == 0, np.concatenate([[0], ends[:-1]]), 0)


@dataclass(frozen=True)
class Entries:
    """Of a vocabulary: its masks, the marks that end a sentence, and all entries that stand for text."""

    masks: Ints
    ends: Ints
    words: Ints


def _places(numbers: Ints) -> Ints:
    """0, 1, … up to each of the numbers, one after the other."""
    starts = np.cumsum(numbers) - numbers
    return np.arange(int(numbers.sum())) - np.repeat(starts, numbers)


def spans(lines: Lines, config: NoiseConfig, entries: Entries) -> tuple[Flat, Flat]:
    """T5 (Raffel et al. 2020, section 3.1.4): `share` of the tokens are hidden, in spans of `mean_length` on average.
    The source has a mask of its own in the place of each span; the target is each mask with what it hides, and one mask
    more at the end. Where the masks do not suffice, the spans are fewer and longer.
    """
    masks, num_hidden = entries.masks, _at_least_one(config, lines)
    num_shown = lines.lengths - num_hidden
    num_spans = np.maximum(1, _rounded(num_hidden / config.span_length))
    num_spans = np.minimum.reduce([num_spans, num_hidden, num_shown + 1, np.full_like(num_hidden, len(masks) - 1)])
    hidden = lines.parts(0, num_hidden, num_spans)
    # Tokens stay between any two spans, so two spans are never one. There may be none before the first and after the
    # last: two units that stand for nothing keep these two parts above 0.
    shown = lines.parts(1, np.where(num_spans > 0, num_shown + 2, 0), np.where(num_spans > 0, num_spans + 1, 0))
    place = _places(np.where(num_spans > 0, num_spans + 1, 0))
    last = np.cumsum(num_spans[num_spans > 0] + 1) - 1
    shown = shown - (place == 0)
    shown[last] -= 1
    # What is shown and what is hidden take turns; the last that is shown has nothing hidden behind it.
    turns = np.zeros((len(shown), 2), np.int64)
    turns[:, 0] = shown
    is_last = np.zeros(len(shown), bool)
    is_last[last] = True
    turns[~is_last, 1] = hidden
    is_hidden = np.repeat(np.tile([False, True], len(shown)), turns.reshape(-1))
    span = np.repeat(np.repeat(place, 2), turns.reshape(-1))  # of each id: the span that it is of or comes before
    before = np.concatenate([[-1], np.where(is_hidden, span, -1)[:-1]])
    begins = is_hidden & ((span != before) | (np.concatenate([[-1], lines.row[:-1]]) != lines.row))
    keeps = ~is_hidden | begins
    src = np.where(begins, masks[np.minimum(span, len(masks) - 1)], lines.ids)[keeps]
    src_lengths = np.bincount(lines.row[keeps], minlength=len(lines.lengths))
    # The target: two entries where a span begins, one for what else is hidden, and the last mask behind each line.
    tgt_lengths = num_hidden + num_spans + 1
    of_ids = np.where(begins, 2, is_hidden.astype(np.int64))
    starts = np.cumsum(tgt_lengths) - tgt_lengths
    within = np.cumsum(of_ids) - of_ids
    line_starts = np.cumsum(lines.lengths) - lines.lengths
    counted = np.concatenate([within, [int(of_ids.sum())]])
    at = starts[lines.row] + within - counted[line_starts[lines.row]]
    tgt = np.empty(int(tgt_lengths.sum()), np.int64)
    tgt[at[begins]] = masks[span[begins]]
    tgt[(at + begins)[is_hidden]] = lines.ids[is_hidden]
    tgt[starts + tgt_lengths - 1] = masks[num_spans]
    return (src, src_lengths), (tgt, tgt_lengths)


def infilling(lines: Lines, config: NoiseConfig, entries: Entries) -> tuple[Flat, Flat]:
    """BART (Lewis et al. 2020, section 2.2): the sentences of a line change places, and then one mask stands for each
    span of Poisson(`mean_length`) tokens, `share` of all; a span of none inserts a mask. The target is the line.

    The last span is cut to the share. There are no more spans than hidden tokens, so no source is longer than its line.
    """
    ids = _sentences_permuted(lines, entries.ends) if config.permutes else lines.ids
    num_hidden = _rounded(config.hidden_share * lines.lengths)
    row = np.repeat(np.arange(len(num_hidden)), num_hidden)
    drawn = np.searchsorted(_poisson(config.span_length), lines.keys(1, num_hidden) >> np.uint64(32), side="right")
    total = np.cumsum(drawn)
    starts = np.cumsum(num_hidden) - num_hidden
    total = total - np.concatenate([[0], total])[starts[row]]  # of each span: the tokens of it and of those before it
    budget = num_hidden[row]
    is_last_draw = _places(num_hidden) == budget - 1
    needed = total - drawn < budget
    ends_here = needed & ((total >= budget) | is_last_draw)
    size = np.where(ends_here, budget - (total - drawn), drawn)[needed]
    num_spans = np.bincount(row[needed], minlength=len(num_hidden))
    # Spans and the tokens that stay, in an order drawn from all of them alike.
    slots = lines.lengths - num_hidden + num_spans
    is_mask = lines.chosen(2, slots, num_spans)
    takes = np.ones(len(is_mask), np.int64)
    takes[is_mask] = size
    first = np.cumsum(takes) - takes  # takes sum to the length of a line, so this runs over all lines
    src = np.where(is_mask, entries.masks[0], np.concatenate([ids, [0]])[first])
    return (src, slots), (lines.ids, lines.lengths)


def masked(lines: Lines, config: NoiseConfig, entries: Entries) -> tuple[Flat, Flat]:
    """BERT (Devlin et al. 2019, section 3.1): `share` of the tokens are chosen, at least one of a line. Of these
    `mask_share` become a mask, `random_share` a word of the vocabulary by chance, and the others stay as they are. The
    target has the chosen tokens at their own places, and PAD elsewhere.
    """
    is_chosen = lines.chosen(0, lines.lengths, _at_least_one(config, lines))
    what = lines.keys(1, lines.lengths) >> np.uint64(32)  # of 2**32
    up_to_mask, up_to_random = (np.uint64(round(share * 2**32)) for share in np.cumsum(config.replaced_shares))
    by_chance = lines.keys(2, lines.lengths) >> np.uint64(32)
    words = entries.words[(by_chance * np.uint64(len(entries.words)) >> np.uint64(32)).astype(np.int64)]
    replaced = np.where(what < up_to_mask, entries.masks[0], np.where(what < up_to_random, words, lines.ids))
    src = np.where(is_chosen, replaced, lines.ids)
    return (src, lines.lengths), (np.where(is_chosen, lines.ids, PAD_ID), lines.lengths)


def causal(lines: Lines, config: NoiseConfig, entries: Entries) -> tuple[Flat, Flat]:
    """GPT-2 (Radford et al. 2019): the source is empty, and the target is the line, each token from those before it."""
    return (np.empty(0, np.int64), np.zeros_like(lines.lengths)), (lines.ids, lines.lengths)


def _sentences_permuted(lines: Lines, ends: Ints) -> Ints:
    """The ids, with the sentences of each line in an order drawn from all alike. A sentence ends behind its mark."""
    is_end = np.isin(lines.ids, ends)
    starts = np.cumsum(lines.lengths) - lines.lengths
    sentence = np.cumsum(is_end) - is_end  # over all lines
    sentence = sentence - np.concatenate([sentence, [0]])[starts[lines.row]]
    keys = lines.keys(0, lines.lengths)[starts[lines.row] + sentence]  # as many as tokens, more than sentences
    return lines.ids[np.lexsort((np.arange(len(lines.ids)), keys, lines.row))]


def _at_least_one(config: NoiseConfig, lines: Lines) -> Ints:
    """How many tokens of each line are the share, one where it would be none."""
    return np.where(lines.lengths > 0, np.maximum(1, _rounded(config.hidden_share * lines.lengths)), 0)


def _rounded(numbers: NDArray[np.floating]) -> Ints:
    """To the nearest whole number, halves upward."""
    return np.floor(numbers + 0.5).astype(np.int64)


def _poisson(mean: float) -> NDArray[np.uint64]:
    """The chance of 0, of 0 or 1, and so on, of 2**32."""
    lengths = np.arange(_LONGEST_SPAN)
    log_factorials = np.cumsum(np.log(np.maximum(lengths, 1)))
    shares = np.cumsum(np.exp(lengths * np.log(mean) - mean - log_factorials))
    return np.minimum(np.round(shares * 2**32), 2**32 - 1).astype(np.uint64)


Objective = Callable[[Lines, NoiseConfig, Entries], tuple[Flat, Flat]]
OBJECTIVES: dict[str, Objective] = {"infilling": infilling, "spans": spans, "masked": masked, "causal": causal}
