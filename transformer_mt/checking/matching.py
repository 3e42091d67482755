"""How well a line of one side translates a line of the other, by the statistical aligner.

The aligner learns from stretches of the corpus itself, even where these are shifted: at first each line is paired with
its neighbours on the other side, then with the one that suits best.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.aligning.bitext import Bitext, Side, starts_of
from transformer_mt.aligning.diagonal_model import DiagonalModel
from transformer_mt.aligning.lexical_table import UNKNOWN
from transformer_mt.checking.viterbi import likeliest_states
from transformer_mt.data.word_splitting import UNSPACED

Floats = NDArray[np.float64]
STEM = 5  # letters of a word that count: its endings only thin a small sample out
MOST_WORDS = 40  # of a line are read
FARTHEST = 20  # lines of shift that the lengths of a stretch may show
ITERATIONS = (3, 3, 4, 4)  # of each training of the halves; after each the shifts are chosen anew
LEAST_COUNT = 3  # lines in which a word is that counts
FIRST_TRIES = (1, 12)  # lines to each side with which a line is paired before anything is known
NEAR = 12  # lines to each side among which the shift of a stretch is looked for
CHANCE = (23, 37)  # lines of distance at which nothing is a translation
TELLS = 1.0  # nats a word between a translation and chance; a wrong shift everywhere has 0.6
CHANGE_IN_LESSON = 20.0  # nats that a change within a stretch must gain, so that its lines teach with their own shifts
UNSURE = 4  # lines to each side of such a change, which teach nothing
LEAST_LINES = 60  # in fewer nothing is learned
_WORD = regex.compile(rf"[{UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+|[^\s\w]", regex.VERSION1)


class Stretch:
    """Neighbouring pairs: line n of `src` beside line n of `tgt`."""

    def __init__(self, src: Sequence[str], tgt: Sequence[str]) -> None:
        self.sides = ([_stems(text) for text in src], [_stems(text) for text in tgt])

    def __len__(self) -> int:
        return len(self.sides[0])

    def along(self, path: Sequence[int | None]) -> list[tuple[str, str]]:
        """Each line beside the one that the path has for it, where it has one."""
        src, tgt = self.sides
        places = [(n, n + shift) for n, shift in enumerate(path) if shift is not None]
        return [(" ".join(src[n]), " ".join(tgt[m])) for n, m in places if 0 <= m < len(tgt)]


@lru_cache(2**16)
def _stem(word: str) -> str:
    return word.lower()[:STEM]


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text[: 20 * MOST_WORDS])[:MOST_WORDS]]


@dataclass(frozen=True)
class _Numbered:
    """Lines as the numbers of their words, flat, with a number for each written form."""

    ids: NDArray[np.int32]
    forms: NDArray[np.int32]
    starts: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def take(self, lines: NDArray[np.int64]) -> tuple[Side, NDArray[np.int32]]:
        """These lines, one after the other, and the forms of their words."""
        lengths = self.lengths[lines]
        starts = starts_of(lengths)
        places = np.arange(starts[-1]) + np.repeat(self.starts[lines] - starts[:-1], lengths)
        return Side(self.ids[places], starts), self.forms[places]


class NumberedStretch:
    """A stretch as numbers, for many scores of the same lines."""

    def __init__(self, stretch: Stretch, aligner: Aligner) -> None:
        numbers: dict[str, int] = {}
        sides = []
        for lines, vocabulary in zip(stretch.sides, (aligner.src_vocabulary, aligner.tgt_vocabulary), strict=True):
            flat = [word for line in lines for word in line]
            forms = np.array([numbers.setdefault(word, len(numbers)) for word in flat], np.int32)
            starts = starts_of(np.array([len(line) for line in lines], np.int64))
            sides.append(_Numbered(np.array(vocabulary.find(flat), np.int32), forms, starts))
        self.src, self.tgt = sides

    def lengths(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Words of each line from `first` to before `last`, of the sources and of the targets."""
        return self.src.lengths[first:last].astype(np.float64), self.tgt.lengths[first:last].astype(np.float64)


@dataclass(frozen=True)
class Matcher:
    """A trained aligner, how often each word comes, and what lines score that translate each other and that do not.

    src_shares, tgt_shares: the share of each word in its side. `like_translation` and `like_chance` are mean scores
    of a word, in nats.
    """

    aligner: Aligner
    src_shares: Floats
    tgt_shares: Floats
    like_translation: float
    like_chance: float

    @property
    def border(self) -> float:
        """Lines of a lower score a word are hardly translations of each other."""
        return 0.6 * self.like_translation + 0.4 * self.like_chance

    @property
    def tells(self) -> bool:
        """Whether the scores tell a translation from chance at all."""
        return self.like_translation - self.like_chance > TELLS

    def scores(self, stretch: NumberedStretch, lines: NDArray[np.int64], shift: int | NDArray[np.int64]) -> Floats:
        """How much likelier each line is beside line + shift than its words are anywhere, in nats; 0 where one of both
        is blank or does not exist.
        """
        found = np.zeros(len(lines))
        others = lines + shift
        there = (others >= 0) & (others < len(stretch.tgt.lengths))
        there[there] &= (stretch.src.lengths[lines[there]] > 0) & (stretch.tgt.lengths[others[there]] > 0)
        if not there.any():
            return found
        (src, src_forms), (tgt, tgt_forms) = stretch.src.take(lines[there]), stretch.tgt.take(others[there])
        bitext = Bitext(src, tgt)
        forward = _gain(self.aligner.forward, bitext, src_forms, tgt_forms, self.tgt_shares)
        backward = _gain(self.aligner.backward, bitext.reversed(), tgt_forms, src_forms, self.src_shares)
        found[there] = (forward + backward) / 2
        return found

    def scored_words(self, stretch: NumberedStretch, lines: NDArray[np.int64], shift: int) -> Floats:
        """The sum of `scores`, and of the words of the lines that have a partner, as a mean of both sides."""
        lines = lines[(lines + shift >= 0) & (lines + shift < len(stretch.tgt.lengths))]
        words = (stretch.src.lengths[lines].sum() + stretch.tgt.lengths[lines + shift].sum()) / 2
        return np.array([self.scores(stretch, lines, shift).sum(), float(words)])


def _gain(
    model: DiagonalModel, bitext: Bitext, src_forms: NDArray[np.int32], tgt_forms: NDArray[np.int32], shares: Floats
) -> Floats:
    """The sum over each target's words of log P(word | source) - log P(word)."""
    cells, nothing = model.scores(bitext, src_forms, tgt_forms)
    sizes = np.repeat(bitext.src.lengths, bitext.tgt.lengths)
    explained = np.add.reduceat(cells, starts_of(sizes)[:-1]) + nothing
    alone = np.where(bitext.tgt.ids < 0, UNKNOWN, shares[bitext.tgt.ids])
    return np.add.reduceat(np.log(explained / alone), bitext.tgt.starts[:-1])


def train_matcher(stretches: Sequence[Stretch]) -> Matcher | None:
    """A matcher that has learned from these stretches; None where there are too few lines, or where it cannot tell
    translations from chance.
    """
    if sum(map(len, stretches)) < LEAST_LINES:
        return None
    for farthest in FIRST_TRIES:
        matcher = _train_within(stretches, farthest)
        if matcher and matcher.tells:
            return matcher
    return None


def _train_within(stretches: Sequence[Stretch], farthest: int) -> Matcher | None:
    """A matcher that first pairs every line with all lines up to so far from its place.

    The shift of a stretch is chosen by a matcher that has not learned from it: one that has would find its own mistakes
    again. A stretch whose halves do not agree, because a shift begins in it, teaches nothing.
    """
    near = sorted(range(-farthest, farthest + 1), key=abs)
    known: list[int | None] = [shift_by_lengths(_lengths(stretch)) for stretch in stretches]
    around = near
    halves: list[Matcher | None] = [None, None]
    for number, iterations in enumerate(ITERATIONS):
        halves = [
            _trained([pair for n in range(half, len(stretches), 2) for pair in _paired(stretches[n], known[n], around)],
                     iterations)
            for half in (0, 1)
        ]  # fmt: skip
        before, around = known, [0]
        known = [
            _shift_of(matcher, stretch) if (matcher := halves[1 - n % 2]) else None
            for n, stretch in enumerate(stretches)
        ]
        if number and known == before:
            break
    paths = [
        _path_in(matcher, stretch, shift) if (matcher := halves[1 - n % 2]) else []
        for n, (stretch, shift) in enumerate(zip(stretches, known, strict=True))
    ]
    matcher = _trained([pair for one, path in zip(stretches, paths, strict=True) for pair in one.along(path)], 4)
    if not matcher:
        return None
    true, chance = np.zeros(2), np.zeros(2)  # score and words
    for n, shift in enumerate(known):
        judge = halves[1 - n % 2]
        if judge is None or shift is None:
            continue
        numbered, lines = NumberedStretch(stretches[n], judge.aligner), np.arange(len(stretches[n]))
        true += judge.scored_words(numbered, lines, shift)
        for far in CHANCE:
            chance += judge.scored_words(numbered, lines, shift + far)
    return replace(matcher, like_translation=true[0] / max(true[1], 1), like_chance=chance[0] / max(chance[1], 1))


def _paired(stretch: Stretch, shift: int | None, around: Sequence[int]) -> list[tuple[str, str]]:
    return [] if shift is None else [pair for d in around for pair in stretch.along([shift + d] * len(stretch))]


def _trained(pairs: list[tuple[str, str]], num_iterations: int) -> Matcher | None:
    """A matcher of these pairs. Of the others a rare word would know by heart beside what it stood once."""
    pairs = [pair for pair in pairs if all(pair)]
    frequent = []
    for side in (0, 1):
        counts = Counter(word for pair in pairs for word in set(pair[side].split()))
        frequent.append({word for word, count in counts.items() if count >= LEAST_COUNT})
    kept = [[" ".join(w for w in pair[side].split() if w in frequent[side]) for pair in pairs] for side in (0, 1)]
    pairs = [(src, tgt) for src, tgt in zip(*kept, strict=True) if src and tgt]
    if not pairs:
        return None
    aligner = Aligner.train(pairs, num_iterations=num_iterations)
    shares = []
    for side, vocabulary in enumerate((aligner.src_vocabulary, aligner.tgt_vocabulary)):
        counts = np.zeros(len(vocabulary))
        for pair in pairs:
            np.add.at(counts, vocabulary.find(pair[side].split()), 1)
        shares.append((counts + 0.1) / (counts + 0.1).sum())
    return Matcher(aligner, shares[0], shares[1], 0.0, 0.0)


def _path_in(matcher: Matcher, stretch: Stretch, known: int | None) -> list[int | None]:
    """The shift of each line of a stretch in which another may begin; None near a change, or where nothing is sure."""
    shifts, scores = _scored(matcher, stretch)
    states = likeliest_states(scores.T, CHANGE_IN_LESSON, None)
    if (states == states[0]).all():
        return [known] * len(stretch)
    path: list[int | None] = shifts[states].tolist()
    for change in (np.flatnonzero(np.diff(states)) + 1).tolist():
        for line in range(max(0, change - UNSURE), min(change + UNSURE, len(path))):
            path[line] = None
    return path


def _scored(matcher: Matcher, stretch: Stretch) -> tuple[NDArray[np.int64], Floats]:
    """The shifts that a stretch may have, the least first, and the scores of its lines, (num_shifts, num_lines)."""
    numbered, lines = NumberedStretch(stretch, matcher.aligner), np.arange(len(stretch))
    shifts = np.array(sorted({*range(-NEAR, NEAR + 1), shift_by_lengths(_lengths(stretch))}, key=abs))
    scores = matcher.scores(numbered, np.tile(lines, len(shifts)), np.repeat(shifts, len(lines)))
    return shifts, scores.reshape(len(shifts), len(lines))


def _lengths(stretch: Stretch) -> tuple[Floats, Floats]:
    src, tgt = (np.array([len(line) for line in side], np.float64) for side in stretch.sides)
    return src, tgt


def _shift_of(matcher: Matcher, stretch: Stretch) -> int | None:
    """The shift at which the lines of a stretch score best; None where its halves do not agree on it."""
    shifts, scores = _scored(matcher, stretch)
    halves = np.array_split(scores, 2, axis=1)
    first, second = (int(shifts[half.sum(axis=1).argmax()]) for half in halves)
    return first if first == second else None


def shift_by_lengths(lengths: tuple[Floats, Floats], around: int = 0) -> int:
    """The shift, up to `FARTHEST` from `around`, at which the lengths of both sides go together; 0 unless one does so
    much better than `around` itself. Lengths are those of the lines of a stretch, sources and targets.
    """
    src, tgt = (_beside_neighbours(np.log1p(side)) for side in lengths)
    best, best_value, straight = 0, 0.0, 0.0
    for distance in sorted(range(-FARTHEST, FARTHEST + 1), key=abs):
        shift = around + distance
        first, last = max(0, -shift), min(len(src), len(tgt) - shift)
        if last - first < LEAST_LINES // 2:
            continue
        a, b = src[first:last], tgt[first + shift : last + shift]
        size = float(np.sqrt((a @ a) * (b @ b)))
        value = float(a @ b) / size if size else 0.0
        straight = straight if distance else value
        if value > best_value:
            best, best_value = shift, value
    return best if best_value > max(0.5, straight + 0.3) else 0


def _beside_neighbours(lengths: Floats) -> Floats:
    """Lengths less the mean of their neighbourhood, which in a sorted corpus would suit any shift."""
    if len(lengths) < 9:
        return lengths - lengths.mean() if len(lengths) else lengths
    around = np.convolve(lengths, np.ones(9) / 9, "same") / np.convolve(np.ones(len(lengths)), np.ones(9) / 9, "same")
    return lengths - around
