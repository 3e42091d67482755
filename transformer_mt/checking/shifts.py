"""Where line n of one side begins to translate line n + k of the other, by the scores of the aligner.

Lines are scored beside the line where their translation should be. Where a window of them scores no better than chance,
all shifts near by are scored, and the likeliest path through them is taken (Viterbi), in which a change of the shift
costs as much as a page of evidence. A stretch that fits at no shift stays what it was: it is bad, but not shifted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.checking.matching import Floats, Matcher, NumberedStretch, Stretch, shift_by_lengths

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
    path = np.zeros(number, np.int16)
    shift, begin = 0, 0
    while begin < number:
        path[begin:] = shift
        lines = np.arange(begin, number)
        low = _low_window(matcher, matcher.scores(numbered, lines, shift), num_words[begin:])
        if low is None:
            break
        first = max(0, begin + low - 4 * WINDOW)  # the windows before it may have been good in part
        last = min(number, begin + low + REGION)
        part = _likeliest(matcher, numbered, np.arange(first, last), int(path[first - 1]) if first else 0, num_words)
        # What comes near the end of the region may look otherwise with more of what follows.
        settled = len(part) if last == number else max(len(part) - 3 * WINDOW, 1 + begin + low - first)
        path[first : first + settled] = part[:settled]
        shift, begin = int(part[settled - 1]), first + settled
    _place_changes(matcher, numbered, path)
    return path


def _place_changes(matcher: Matcher, numbered: NumberedStretch, path: NDArray[np.int16]) -> None:
    """Move each change of the shift to where the lines around it, a region to each side, make it likeliest: weak lines
    may have hidden it from the windows for a while.
    """
    changes = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    for place in range(1, len(changes) - 1):
        change = changes[place]
        before, after = int(path[change - 1]), int(path[change])
        first, last = max(changes[place - 1], change - REGION), min(changes[place + 1], change + REGION)
        lines = np.arange(first, last)
        gained = matcher.scores(numbered, lines, before) - matcher.scores(numbered, lines, after)
        changes[place] = first + int(np.append(0, np.cumsum(gained)).argmax())
        path[first : changes[place]], path[changes[place] : last] = before, after


def _low_window(matcher: Matcher, scores: Floats, num_words: Floats) -> int | None:
    """The first line of the first window that scores too low; None where there is none."""
    window = min(WINDOW, len(scores))
    sums = np.convolve(scores, np.ones(window), "valid")
    words = np.convolve(num_words, np.ones(window), "valid")
    low = np.flatnonzero(sums < matcher.border * words)
    return int(low[0]) if len(low) else None


def _likeliest(
    matcher: Matcher, numbered: NumberedStretch, lines: NDArray[np.int64], before: int, num_words: Floats
) -> NDArray[np.int16]:
    """The shift of each of these lines, where the line before them had `before`."""
    shifts = {before + d for d in range(-REACH, REACH + 1)} | {0}
    if far := shift_by_lengths(numbered.lengths(int(lines[0]), int(lines[-1]) + 1), before):
        shifts |= {far - 1, far, far + 1}
    states = sorted(shifts, key=lambda shift: (abs(shift - before), shift))  # the first wins where all are equal
    scores = np.stack([matcher.scores(numbered, lines, shift) for shift in states], axis=1)
    path = _viterbi(scores, COST)
    found = np.array(states, np.int16)[path]
    start = 0
    while start < len(path):
        end = start + int(np.argmax(np.append(path[start:] != path[start], True)))
        total = scores[np.arange(start, end), path[start:end]].sum()
        if found[start] != before and total < matcher.border * num_words[lines[start:end]].sum():
            found[start:end] = found[start - 1] if start else before
        start = end
    return found


def _viterbi(scores: Floats, cost: float) -> NDArray[np.int64]:
    """The path of the largest sum of scores, (num_lines,), in which every change costs as much, and so does a beginning
    in another state than the first.
    """
    num_lines, num_states = scores.shape
    came_from = np.zeros((num_lines, num_states), np.int16)
    best = np.where(np.arange(num_states) == 0, 0.0, -cost)
    stay = np.arange(num_states)
    for line in range(num_lines):
        top = int(best.argmax())
        changes = best[top] - cost > best
        came_from[line] = np.where(changes, top, stay)
        best = np.where(changes, best[top] - cost, best) + scores[line]
    path = np.zeros(num_lines, np.int64)
    state = int(best.argmax())
    for line in range(num_lines - 1, -1, -1):
        path[line] = state
        state = int(came_from[line, state])
    return path


def shifted_parts(path: NDArray[np.int16]) -> list[Shifted]:
    """The stretches of a path whose shift is not 0."""
    borders = np.flatnonzero(np.diff(path)) + 1
    starts, ends = np.append(0, borders), np.append(borders, len(path))
    return [
        Shifted(int(start), int(end) - 1, int(path[start]))
        for start, end in zip(starts, ends, strict=True)
        if end > start and path[start] != 0
    ]
