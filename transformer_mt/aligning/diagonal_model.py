"""A model of target words given source words: IBM model 1 with a diagonal prior.

Dyer, Chahuneau and Smith (2013); model 1 is that of Brown et al. (1993).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning import kernels
from transformer_mt.aligning.bitext import Bitext, Side
from transformer_mt.aligning.diagonal_prior import Places, best_tension, normaliser
from transformer_mt.aligning.find_kernels import run_kernel
from transformer_mt.aligning.lexical_table import (
    FLOOR,
    UNKNOWN,
    LexicalTable,
    Occurrences,
    normalise_rows,
    uniform_table,
)

Floats = NDArray[np.float64]
FIRST_TENSION = 4.0
_TIE = 1e-9  # scores that differ by a smaller share are equal but for rounding


@dataclass(frozen=True)
class Settings:
    """Of the training. `null_probability` is that of a target word which no source word explains; `alpha` is the
    Dirichlet prior's.
    """

    num_iterations: int = 5
    null_probability: float = 0.08
    alpha: float = 0.01


class _Prior:
    """The diagonal prior at every word of the targets.

    Sentences of equal lengths have equal places, which are computed once.
    """

    def __init__(self, src: Side, tgt: Side) -> None:
        m, n = tgt.lengths, src.lengths
        shapes, shape_of = np.unique(np.stack([m, n]), axis=1, return_inverse=True)
        first_place = np.cumsum(shapes[0]) - shapes[0]
        i = np.arange(len(tgt.ids)) - np.repeat(tgt.starts[:-1], m)
        self._place_of = np.repeat(first_place[shape_of.reshape(-1)], m) + i
        num_places = int(shapes[0].sum())
        of_shapes = np.arange(num_places) - np.repeat(first_place, shapes[0]) + 1
        self.places = Places(of_shapes, np.repeat(shapes[0], shapes[0]), np.repeat(shapes[1], shapes[0]))

    def shares(self, tension: float, null_probability: float) -> tuple[Floats, Floats]:
        """`up` and `down` of `kernels.py`."""
        here = self.places.i / self.places.m
        scale = (1 - null_probability) / normaliser(self.places, tension)
        return (scale * np.exp(tension * here))[self._place_of], (scale * np.exp(-tension * here))[self._place_of]

    def summed(self, weights: Floats) -> Floats:
        """The weights of all words at each of `places`."""
        return np.bincount(self._place_of, weights, len(self.places.i)).astype(np.float64)


@dataclass(frozen=True)
class DiagonalModel:
    """Probabilities of target words given each source word, and given none (`null`, float64 (num_tgt_words,)); the
    tension of the prior.
    """

    table: LexicalTable
    null: Floats
    tension: float
    null_probability: float

    def scores(
        self, bitext: Bitext, src_forms: NDArray[np.int32], tgt_forms: NDArray[np.int32]
    ) -> tuple[Floats, Floats]:
        """The joint probability of each target word with each source word that may explain it, and with none.

        In `bitext` a word that the model has not seen has the number -1. Forms are numbers too: equal ones mark words
        of both sides that are written alike. The first array has a row of the source's length for each target word,
        pair after pair; the second is (num_tgt_words,).
        """
        src, tgt = bitext.src, bitext.tgt
        up, down = _Prior(src, tgt).shares(self.tension, self.null_probability)
        scores = np.empty(int(src.lengths @ tgt.lengths))
        run_kernel(
            kernels.score_cells, src.ids, src_forms, src.starts, tgt.ids, tgt_forms, tgt.starts,
            *self.table.arrays, FLOOR, UNKNOWN, self.tension, up, down, scores,
        )  # fmt: skip
        return scores, self.null_probability * np.where(tgt.ids < 0, UNKNOWN, self.null[tgt.ids])


def best_words(bitext: Bitext, scores: Floats, nothing: Floats) -> NDArray[np.int32]:
    """For each target word the place of the source word that explains it best, -1 for none, from `scores`."""
    best = np.empty(len(bitext.tgt.ids), np.int32)
    run_kernel(kernels.choose_best, bitext.src.starts, bitext.tgt.starts, nothing, scores, _TIE, best)
    return best


def train_model(
    bitext: Bitext, num_src_words: int, num_tgt_words: int, settings: Settings, progress: Callable[[], object]
) -> tuple[DiagonalModel, list[float]]:
    """A model trained by expectation maximisation, and the log-likelihood of the targets before each iteration.

    `progress` is called after each iteration. Every number below the vocabularies' sizes occurs in the bitext.
    """
    em = _Training(bitext, num_src_words, num_tgt_words, settings)
    log_likelihoods = []
    for _ in range(settings.num_iterations):
        log_likelihoods.append(em.iterate())
        progress()
    null = em.null.astype(np.float32).astype(np.float64)  # as they are kept on the disk
    return DiagonalModel(em.table.likely(), null, em.tension, settings.null_probability), log_likelihoods


class _Training:
    """The state of expectation maximisation."""

    def __init__(self, bitext: Bitext, num_src_words: int, num_tgt_words: int, settings: Settings) -> None:
        self.bitext, self.settings = bitext, settings
        self.occurrences = Occurrences.of(bitext, num_src_words)
        self.prior = _Prior(bitext.src, bitext.tgt)
        self.table = uniform_table(bitext, self.occurrences, num_tgt_words)
        self.null = np.full(num_tgt_words, 1 / num_tgt_words)
        self.tension = FIRST_TENSION

    def iterate(self) -> float:
        """One iteration; the log-likelihood before it."""
        likelihoods, feature, by_null = self.expect()
        tgt = self.bitext.tgt.ids
        explained = self.prior.summed(1 - by_null)
        self.null = np.bincount(tgt, by_null, len(self.null)).astype(np.float64)
        normalise_rows(self.table.row_starts, self.table.values, self.settings.alpha)
        normalise_rows(np.array([0, len(self.null)]), self.null, self.settings.alpha)
        self.tension = best_tension(self.prior.places, explained, feature)
        return float(np.log(likelihoods).sum())

    def expect(self) -> tuple[Floats, float, Floats]:
        """The E-step. It puts expected counts into the table, in the place of probabilities.

        Returns the likelihood of each target word, the expected sum of the prior's feature, and the probability that no
        word explains a target word.
        """
        bitext, here, table = self.bitext, self.occurrences, self.table
        tgt, null_probability = bitext.tgt.ids, self.settings.null_probability
        up, down = self.prior.shares(self.tension, null_probability)
        by_null: Floats = null_probability * self.null[tgt]
        likelihoods = by_null.copy()
        words = here.word_starts, here.sentences, here.positions, bitext.src.starts, bitext.tgt.starts, tgt
        row, counts, feature = np.zeros_like(self.null), np.zeros_like(self.null), np.zeros(1)
        run_kernel(kernels.add_likelihoods, *words, *table.arrays, self.tension, up, down, row, likelihoods)
        run_kernel(
            kernels.count_expected,
            *words,
            *table.arrays,
            self.tension,
            up / likelihoods,
            down / likelihoods,
            row,
            counts,
            feature,
        )
        return likelihoods, float(feature[0]), by_null / likelihoods
