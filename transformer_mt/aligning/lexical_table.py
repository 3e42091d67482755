"""Probabilities of a target word given a source word, for the pairs of words that occur in one sentence pair."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.aligning import kernels
from transformer_mt.aligning.bitext import Bitext, starts_of
from transformer_mt.aligning.find_kernels import run_kernel

FLOOR = 1e-7  # a smaller probability is not kept, and counts as this
UNKNOWN = 1e-4  # of a word that was not seen in training, given any word, and of any word given it
_AT_ONCE = 2**22  # entries that an M-step takes up at a time


@dataclass(frozen=True)
class LexicalTable:
    """A sparse matrix by rows: row w holds what source word w may translate to.

    row_starts: int64 (num_src_words + 1,). columns, the numbers of target words: int32 (num_entries,). values:
    float64 (num_entries,).
    """

    row_starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """In the order in which the loops take them."""
        return self.row_starts, self.columns, self.values

    def row(self, word: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The target words of a row, and their probabilities."""
        entries = slice(self.row_starts[word], self.row_starts[word + 1])
        return self.columns[entries], self.values[entries]

    def likely(self) -> "LexicalTable":
        """The entries of at least `FLOOR`, each row in the order of its target words, rounded to float32."""
        kept = self.values >= FLOOR
        sizes = np.add.reduceat(kept, self.row_starts[:-1], dtype=np.int64)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        columns = self.columns[kept]
        order = np.lexsort((columns, rows))
        values = self.values[kept][order].astype(np.float32).astype(np.float64)
        return LexicalTable(starts_of(sizes), columns[order], values)


@dataclass(frozen=True)
class Occurrences:
    """Where each source word occurs: word w in the sentences `sentences[word_starts[w] : word_starts[w + 1]]`, at these
    positions, from 0.
    """

    word_starts: NDArray[np.int64]
    sentences: NDArray[np.int32]
    positions: NDArray[np.int32]

    @classmethod
    def of(cls, bitext: Bitext, num_words: int) -> "Occurrences":
        """Of every source word, sentence by sentence."""
        src = bitext.src
        order = np.argsort(src.ids, kind="stable")
        sentences = np.repeat(np.arange(len(bitext), dtype=np.int32), src.lengths)
        positions = (np.arange(len(src.ids)) - np.repeat(src.starts[:-1], src.lengths)).astype(np.int32)
        counts = np.bincount(src.ids, minlength=num_words)
        return cls(starts_of(counts), sentences[order], positions[order])


def uniform_table(bitext: Bitext, occurrences: Occurrences, num_tgt_words: int) -> LexicalTable:
    """A table with an entry for every pair of words that occurs, all equally likely."""
    beside = occurrences.word_starts, occurrences.sentences, bitext.tgt.starts, bitext.tgt.ids
    sizes = np.zeros(len(occurrences.word_starts) - 1, np.int64)
    run_kernel(kernels.count_row_sizes, *beside, np.full(num_tgt_words, -1, np.int32), sizes)
    row_starts = starts_of(sizes)
    columns = np.empty(row_starts[-1], np.int32)
    run_kernel(kernels.fill_rows, *beside, np.full(num_tgt_words, -1, np.int32), row_starts, columns)
    return LexicalTable(row_starts, columns, np.full(len(columns), 1 / num_tgt_words))


def normalise_rows(row_starts: NDArray[np.int64], values: NDArray[np.float64], alpha: float) -> None:
    """The M-step: turn the expected counts of each row into probabilities, in place.

    With alpha > 0 each row has a symmetric Dirichlet prior, and a probability is exp(digamma(count + alpha) -
    digamma(sum of the same)), the step of variational Bayes. It takes mass from words that occur once. With alpha = 0
    it is the largest likelihood.
    """
    sizes = np.diff(row_starts)
    totals = np.add.reduceat(values, row_starts[:-1])
    if alpha > 0:
        totals = _digamma(totals + alpha * sizes)
    first = 0
    while first < len(sizes):
        last = max(first + 1, int(np.searchsorted(row_starts, row_starts[first] + _AT_ONCE)))
        entries = slice(row_starts[first], row_starts[min(last, len(sizes))])
        of_entries = np.repeat(totals[first:last], sizes[first:last])
        if alpha > 0:
            values[entries] = np.exp(_digamma(values[entries] + alpha) - of_entries)
        else:
            values[entries] /= of_entries
        first = last


def _digamma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return torch.digamma(torch.from_numpy(x)).numpy()
