"""The prior of an alignment: words at like places of both sentences translate each other.

Dyer, Chahuneau and Smith (2013), "A Simple, Fast, and Effective Reparameterization of IBM Model 2", sections 2 and 3.
Target word i of m is explained by no word with a fixed probability, and otherwise by source word j of n with a
probability in proportion to exp(tension h), where h(i, j, m, n) = -|i / m - j / n|. Places count from 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_TENSION, MOST_TENSION = 0.1, 14.0
_HALVINGS = 30  # of the interval between them: to 1e-8

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Places:
    """Places i of m in target sentences whose source sentences have n words: int64 arrays of one shape."""

    i: Integers
    m: Integers
    n: Integers


def normaliser(places: Places, tension: float) -> Floats:
    """The sum of exp(tension h) over the n source words, for each place: two geometric series (equation 6)."""
    return _sums(places, tension)[0]


def expected_feature(places: Places, tension: float) -> Floats:
    """The mean of h under the prior, the derivative of the log of the normaliser by the tension (equation 8): the
    series are arithmetico-geometric.
    """
    total, weighted = _sums(places, tension)
    return weighted / total


def gradient(places: Places, weights: Floats, feature: float, tension: float) -> float:
    """Of the expected log-likelihood by the tension.

    `weights` says how many words are expected at each place that some source word explains, and `feature` is the sum of
    h over all pairs of words, each times its expected count.
    """
    return feature - float(weights @ expected_feature(places, tension))


def best_tension(places: Places, weights: Floats, feature: float) -> float:
    """The tension of the largest expected log-likelihood, between `LEAST_TENSION` and `MOST_TENSION`.

    The expected log-likelihood is concave. So its gradient falls, and says on which side of any tension the best one
    lies; steps along the gradient end at the same place.
    """
    low, high = LEAST_TENSION, MOST_TENSION
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if gradient(places, weights, feature, middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _sums(places: Places, tension: float) -> tuple[Floats, Floats]:
    """The sums of exp(tension h) and of h exp(tension h) over the source words.

    Up to the diagonal h rises by 1 / n from word to word, and behind it h falls by as much. Seen from the diagonal both
    are series of the same ratio.
    """
    i, m, n = places.i, places.m, places.n
    num_before = i * n // m
    here, step = i / m, 1 / n
    before = _series(num_before / n - here, num_before, step, tension)
    behind = _series(here - (num_before + 1) / n, n - num_before, step, tension)
    return before[0] + behind[0], before[1] + behind[1]


def _series(first: Floats, number: Integers, step: Floats, tension: float) -> tuple[Floats, Floats]:
    """The sums of exp(tension h) and of h exp(tension h) over h = first - k step, k from 0 to number - 1."""
    ratio = np.exp(-tension * step)
    gap = -np.expm1(-tension * step)
    last = np.exp(-tension * step * number)
    geometric = -np.expm1(-tension * step * number) / gap
    arithmetic = (ratio * geometric - number * last) / gap  # sum of k ratio^k
    top = np.exp(tension * first)
    return top * geometric, top * (first * geometric - step * arithmetic)
