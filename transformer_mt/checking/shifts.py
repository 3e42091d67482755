"""Where line n of one side begins to translate line n + k of the other, by the scores of the aligner.

Lines are scored beside the line where their translation should be, and beside its neighbours. Where a window of them
scores no better than chance, or lines suit a neighbour better, all shifts near by are scored, and the likeliest path
through them is taken (Viterbi), in which a change of the shift costs as much as a page of evidence. A stretch that fits
at no shift stays what it was: it is bad, but not shifted.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.checking.matching import Floats, Matcher, NumberedStretch, Stretch, shift_by_lengths
from transformer_mt.checking.viterbi import likeliest_states

WINDOW = 16  # lines whose mean score is looked at
REACH = 12  # lines to each side among which a translation is looked for
REGION = 200  # lines whose path is found at once
COST = 60.0  # nats, of a change: three lines of evidence in a corpus of sentences
MARGIN = 64  # lines around a block that are read with it


class Shifted(NamedTuple):
    """The pairs from `first` to `last`, from 0: line n translates line n + shift."""

    first: int
    last: int
    shift: int


def path_of(matcher: Matcher, stretch: Stretch) -> NDArray[np.int16]:
    """The shift of each line of a stretch; 0 where none is known."""
    numbered, number = NumberedStretch(stretch, matcher.aligner), len(stretch)
    num_words = (numbered.src.lengths + numbered.tgt.lengths) / 2

    @cache
    def scores_at(shift: int) -> Floats:
        return matcher.scores(numbered, np.arange(number), shift)

    path = np.zeros(number, np.int16)
    shift, begin = 0, 0
    while begin < number:
        path[begin:] = shift
        doubt = _first_doubt(
            lambda other, begin=begin: scores_at(other)[begin:], shift, matcher.border * num_words[begin:]
        )
        if doubt is None:
            break
        first, seen = max(0, begin + doubt.since - 4 * WINDOW), begin + doubt.seen
        last = min(number, seen + REGION)
        part = _likeliest(matcher, numbered, np.arange(first, last), int(path[first - 1]) if first else 0, num_words)
        # What comes near the end of the region may look otherwise with more of what follows.
        settled = len(part) if last == number else max(len(part) - 3 * WINDOW, 1 + seen - first)
        path[first : first + settled] = part[:settled]
        shift, begin = int(part[settled - 1]), first + settled
    return path


class _Doubt(NamedTuple):
    """Lines counted from the first that was looked at: at `seen` it shows that those from `since` may be shifted."""

    since: int
    seen: int


def _first_doubt(scores_at: Callable[[int], Floats], shift: int, border: Floats) -> _Doubt | None:
    """Where lines first look shifted: a window of them scores below its border, or they suit a neighbour better by what
    a change costs. In a sorted corpus neighbours are so alike that no window shows it.
    """
    scores = scores_at(shift)
    low = np.convolve(scores - border, np.ones(min(WINDOW, len(scores))), "valid") < 0
    doubts = [_Doubt(int(low.argmax()), int(low.argmax()))] if low.any() else []
    for other in (shift - 2, shift - 1, shift + 1, shift + 2):
        gained = np.append(0, np.cumsum(scores_at(other) - scores))
        better = gained - np.minimum.accumulate(gained) > COST  # Page's test of a change
        if better.any():
            seen = int(better.argmax())
            doubts.append(_Doubt(int(gained[:seen].argmin()), seen - 1))
    return min(doubts, key=lambda doubt: doubt.seen, default=None)


def _likeliest(
    matcher: Matcher, numbered: NumberedStretch, lines: NDArray[np.int64], before: int, num_words: Floats
) -> NDArray[np.int16]:
    """The shift of each of these lines, where the line before them had `before`."""
    shifts = {before + d for d in range(-REACH, REACH + 1)} | {0}
    if far := shift_by_lengths(numbered.lengths(int(lines[0]), int(lines[-1]) + 1), before):
        shifts |= {far - 1, far, far + 1}
    states = sorted(shifts, key=lambda shift: (abs(shift - before), shift))  # the first wins where all are equal
    scores = np.stack([matcher.scores(numbered, lines, shift) for shift in states], axis=1)
    others = lines[:, None] + np.array(states)
    is_beyond = (others < 0) | (others >= len(num_words))  # no evidence for a shift that leaves lines without a partner
    scores[is_beyond] = np.repeat(matcher.like_chance * num_words[lines, None], len(states), axis=1)[is_beyond]
    path = likeliest_states(scores, COST)
    found = np.array(states, np.int16)[path]
    start = 0
    while start < len(path):
        end = start + int(np.argmax(np.append(path[start:] != path[start], True)))
        total = scores[np.arange(start, end), path[start:end]].sum()
        if found[start] != before and total < matcher.border * num_words[lines[start:end]].sum():
            found[start:end] = found[start - 1] if start else before
        start = end
    return found


def shifted_parts(path: NDArray[np.int16]) -> list[Shifted]:
    """The stretches of a path whose shift is not 0."""
    borders = np.flatnonzero(np.diff(path)) + 1
    starts, ends = np.append(0, borders), np.append(borders, len(path))
    return [
        Shifted(int(start), int(end) - 1, int(path[start]))
        for start, end in zip(starts, ends, strict=True)
        if end > start and path[start] != 0
    ]
