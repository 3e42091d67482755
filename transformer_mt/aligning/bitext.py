"""Sentence pairs as flat arrays of word numbers."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning.words import Vocabulary
from transformer_mt.data.word_splitting import bare_words

MAX_WORDS = 2000  # of a side. Work and memory grow with the product of both sides.


def starts_of(sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Where stretches of these sizes begin, one after the other, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


@dataclass(frozen=True)
class Side:
    """The sentences of one side, one after the other. Sentence n is `ids[starts[n] : starts[n + 1]]`.

    ids: int32 (num_words,). starts: int64 (num_pairs + 1,).
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> "Side":
        """Of sentences as lists of numbers."""
        lengths = [len(sentence) for sentence in sentences]
        ids = np.array([number for sentence in sentences for number in sentence], np.int32)
        return cls(ids, starts_of(np.array(lengths, np.int64)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Words of each sentence, int64 (num_pairs,)."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class Bitext:
    """Pairs in one direction: words of `tgt` are explained by words of `src`. No sentence is empty."""

    src: Side
    tgt: Side

    def __len__(self) -> int:
        return len(self.src.starts) - 1

    def reversed(self) -> "Bitext":
        """The other direction."""
        return Bitext(self.tgt, self.src)


def read_bitext(pairs: Iterable[tuple[str, str]], src: Vocabulary, tgt: Vocabulary) -> Bitext:
    """The pairs as numbers; words that the vocabularies lack are added to them.

    A pair with a blank side is left out, and so is one with more than `MAX_WORDS` words on a side. Nothing of it goes
    to the vocabularies: a word without a sentence would have no row in a table of probabilities.
    """
    ids, starts = (array("i"), array("i")), (array("q", [0]), array("q", [0]))
    for pair in pairs:
        if not all(map(_has_words, pair)):
            continue
        for side, sentence in enumerate((src.add_line(pair[0]), tgt.add_line(pair[1]))):
            ids[side].extend(sentence)
            starts[side].append(len(ids[side]))
    sides = [Side(np.array(ids[i], np.int32), np.array(starts[i], np.int64)) for i in (0, 1)]
    return Bitext(*sides)


def _has_words(line: str) -> bool:
    """Whether the line has a word, and at most `MAX_WORDS`. A word has a character at least, so few lines are split."""
    if len(line) <= MAX_WORDS:
        return bool(line.strip())
    return 0 < sum(len(bare_words(chunk)) for chunk in line.split()) <= MAX_WORDS
