"""Pairs whose lengths do not go together, by the percentiles of the corpus itself."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_PAIRS = 100  # fewer have no percentiles worth the name
GROUP = 300  # pairs of like length at least
MOST_GROUPS = 20
FAR = 4.0  # times the distance from the median to the 10th or the 90th percentile: five standard deviations
LEAST_SPREAD = 0.08  # of a logarithm: where most ratios are equal, a character more is no fault
LEAST_CHARACTERS = 8  # by which the shorter side misses the border


@dataclass(frozen=True)
class Bands:
    """For pairs up to each of `edges` characters (both sides together): the lowest and the highest logarithm of the
    ratio of target to source, and its median.
    """

    edges: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    median: NDArray[np.float64]

    @classmethod
    def of(cls, src: NDArray[np.uint32], tgt: NDArray[np.uint32]) -> "Bands | None":
        """The bands of a corpus, by the characters of its sides; None where it is too small."""
        there = (src > 0) & (tgt > 0)
        if (number := int(there.sum())) < LEAST_PAIRS:
            return None
        if number > 1_000_000:  # so many from all over it say as much
            there = np.flatnonzero(there)[:: number // 500_000]
        total, ratio = _total_and_ratio(src[there], tgt[there])
        num_groups = int(np.clip(number // GROUP, 1, MOST_GROUPS))
        edges = np.unique(np.quantile(total, np.arange(1, num_groups + 1) / num_groups))
        group = np.searchsorted(edges, total)
        bands = []
        for number in range(len(edges)):
            values = ratio[group == number]
            tenth, median, ninetieth = np.quantile(values, (0.1, 0.5, 0.9)) if len(values) else (0.0, 0.0, 0.0)
            down, up = max(median - tenth, LEAST_SPREAD), max(ninetieth - median, LEAST_SPREAD)
            bands.append((median - FAR * down, median + FAR * up, median))
        low, high, medians = np.array(bands).T
        edges[-1] = np.inf
        return cls(edges, low, high, medians)

    def outside(self, src: NDArray[np.uint32], tgt: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which pairs are out of the ordinary; those with an empty side are not."""
        total, ratio = _total_and_ratio(src, tgt)
        group = np.searchsorted(self.edges, total)
        apart = np.abs(src - tgt / np.exp(self.median[group]))
        far = (ratio < self.low[group]) | (ratio > self.high[group])
        return far & (src > 0) & (tgt > 0) & (apart >= LEAST_CHARACTERS)


def _total_and_ratio(
    src: NDArray[np.uint32], tgt: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return src.astype(np.float64) + tgt, np.log((tgt + 1.0) / (src + 1.0))
