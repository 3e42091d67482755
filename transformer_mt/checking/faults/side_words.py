"""Which side of the corpus a text's words belong to: counts of words by side, in tables of a fixed size."""

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from transformer_mt.checking.faults.pair_texts import words_of

SIZE = 2**20  # places in the table of a side; words that share one are counted together
MOST_WORDS = 100  # of a text
MOST_OF_A_WORD = 3.0  # nats
SURE = 7.0  # nats: a text of the other side's words
SURE_OF_A_WORD = 1.5  # nats on average
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


@lru_cache(2**18)
def _place(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % SIZE


def places_of(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of all words, one text after the other, and how many each text has."""
    places = [[_place(word) for word in words_of(text)[:MOST_WORDS]] for text in texts]
    lengths = np.array([len(one) for one in places], np.int64)
    return np.array([place for one in places for place in one], np.int64), lengths


def counted(texts: Sequence[str]) -> Counts:
    """The places of the words, and how often each comes."""
    return np.unique(places_of(texts)[0], return_counts=True)


class SideWords:
    """How much likelier a word is on one side than on the other, learned from a corpus."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, SIZE), np.float32)
        self._leaning: NDArray[np.float32] | None = None

    def add(self, side: int, counts: Counts) -> None:
        """Count the words of some texts of the sources (0) or of the targets (1)."""
        self._counts[side][counts[0]] += counts[1]

    def learn(self) -> None:
        """Turn the counts into nats: above 0 for words of the sources."""
        totals = np.maximum(self._counts.sum(axis=1), 1)
        src, tgt = self._counts + 0.5
        leaning = np.log(src / totals[0]) - np.log(tgt / totals[1])
        seen = self._counts.sum(axis=0) >= 3
        self._leaning = np.where(seen, np.clip(leaning, -MOST_OF_A_WORD, MOST_OF_A_WORD), 0).astype(np.float32)
        self._counts = np.zeros((2, 0), np.float32)

    def elsewhere(self, side: int, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts of a side have the words of the other side."""
        assert self._leaning is not None
        places, lengths = places_of(texts)
        starts = np.cumsum(lengths) - lengths
        values = np.append(self._leaning[places], 0).astype(np.float64)
        sums = np.add.reduceat(values, starts) if len(starts) else values
        sums = np.where(lengths > 0, sums, 0) * (1 if side else -1)
        return (sums > SURE) & (sums > SURE_OF_A_WORD * lengths)
