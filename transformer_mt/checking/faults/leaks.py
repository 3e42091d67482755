"""Training texts that are in a validation or a test, or almost.

Almost is four fifths of the words in common. Candidates come from MinHash (Broder 1997) in bands (Leskovec, Rajaraman
and Ullman, "Mining of massive datasets", section 3.4), and the words of each candidate are then compared.
"""

import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.checking.faults.pair_texts import words_of
from transformer_mt.checking.faults.rules import BITS
from transformer_mt.data.split import sentence_key
from transformer_mt.data.word_splitting import is_of_spaced_word

NEAR = 0.8  # of the words of both are in both
LEAST_WORDS = 5
BANDS, ROWS = 12, 4  # a pair of texts with 0.8 in common is missed once in 500, with 0.3 looked at once in 10
MOST_COMPARED = 50  # held-out texts that a text is compared with
_BATCH = 2_000
_MULTIPLIERS = np.random.default_rng(1).integers(1, 2**63, BANDS * ROWS, dtype=np.uint64) | np.uint64(1)
_MIXER = np.uint64(0x9E3779B97F4A7C15)


class HeldOutText(NamedTuple):
    """A text of the validation or of the test."""

    split: str
    line: int  # from 1
    words: frozenset[int]


class HeldOut:
    """All texts of the validation and of the test, of both sides."""

    def __init__(self) -> None:
        self._exact: tuple[dict[int, tuple[str, int]], ...] = ({}, {})
        self._texts: tuple[list[HeldOutText], ...] = ([], [])
        self._bands: tuple[dict[int, list[int]], ...] = ({}, {})

    def __len__(self) -> int:
        return len(self._exact[0])

    def add(self, split: str, pairs: Iterable[tuple[str, str]], first: int = 0) -> None:
        """Add pairs of a split, of which `first` were added before."""
        for side, texts in enumerate(zip(*pairs, strict=True)):
            words = [_features(text) for text in texts]
            rows = iter(_signatures([one for one in words if len(one) >= LEAST_WORDS]))
            for line, (text, features) in enumerate(zip(texts, words, strict=True), start=first + 1):
                if not text.strip():
                    continue
                self._exact[side].setdefault(sentence_key(text), (split, line))
                if len(features) >= LEAST_WORDS:
                    for band in next(rows).tolist():
                        self._bands[side].setdefault(band, []).append(len(self._texts[side]))
                    self._texts[side].append(HeldOutText(split, line, frozenset(features)))

    def flags(self, side: int, texts: Sequence[str]) -> NDArray[np.uint32]:
        """The bits of the leaks of each text of a side."""
        found = np.zeros(len(texts), np.uint32)
        exact, bands = self._exact[side], self._bands[side]
        places, features = [], []
        for number, text in enumerate(texts):
            if text.strip() and sentence_key(text) in exact:
                found[number] = BITS["leak"]
                continue
            words = _features(text)
            if len(words) >= LEAST_WORDS:
                places.append(number)
                features.append(words)
        known = np.array(sorted(bands), np.uint64)
        for first in range(0, len(features), _BATCH):
            signatures = _signatures(features[first : first + _BATCH])
            for row in np.flatnonzero(np.isin(signatures, known).any(axis=1)).tolist():
                if self._nearest(side, features[first + row], signatures[row]):
                    found[places[first + row]] = BITS["near_leak"]
        return found

    def where(self, side: int, text: str) -> tuple[str, int, float] | None:
        """The split, the line and the share of words in common of the held-out text that is most like this one."""
        if place := self._exact[side].get(sentence_key(text)):
            return (*place, 1.0)
        words = _features(text)
        if len(words) < LEAST_WORDS:
            return None
        near = self._nearest(side, words, _signatures([words])[0])
        return (near[1].split, near[1].line, near[0]) if near else None

    def _nearest(self, side: int, words: list[int], signature: NDArray[np.uint64]) -> tuple[float, HeldOutText] | None:
        own = frozenset(words)
        numbers = {number for band in signature.tolist() for number in self._bands[side].get(band, ())[:MOST_COMPARED]}
        texts = [self._texts[side][number] for number in sorted(numbers)[:MOST_COMPARED]]
        scored = [(len(own & text.words) / len(own | text.words), text) for text in texts]
        best = max(scored, key=lambda one: one[0], default=None)
        return best if best and best[0] >= NEAR else None


@lru_cache(2**18)
def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _features(text: str) -> list[int]:
    """Hashes of the different words; where words are single characters, of these in twos."""
    words = words_of(text)
    if any(len(word) == 1 and not is_of_spaced_word(word) for word in words):
        words = [a + b for a, b in pairwise(words)]
    return sorted({_hash(word) for word in words})


def _signatures(features: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
    """A hash of each band of minima, (num_texts, BANDS). No text is without features."""
    if not features:
        return np.zeros((0, BANDS), np.uint64)
    lengths = np.array([len(one) for one in features])
    flat = np.array([feature for one in features for feature in one], np.uint64)
    starts = np.cumsum(lengths) - lengths
    flat = (flat ^ (flat << np.uint64(32))) * _MIXER
    bands = np.zeros((len(features), BANDS), np.uint64)
    for number, multiplier in enumerate(_MULTIPLIERS):
        mixed = flat * multiplier
        minima = np.minimum.reduceat(mixed ^ (mixed >> np.uint64(29)), starts)
        band = number % BANDS
        bands[:, band] = (bands[:, band] ^ minima) * _MIXER + np.uint64(band)
    return bands
