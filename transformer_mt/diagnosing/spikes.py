"""Updates whose loss stands out from those before them. What is usual is kept in the state of a training."""

import math
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from transformer_mt.diagnosing.thresholds import threshold

# Times the median distance of neighbours: the standard deviation of independent normal draws. A loss that falls adds
# little to such distances, and much to those from the median.
TO_DEVIATION = 1.4826 / math.sqrt(2)
LEAST_SPREAD = 1e-6


class Usual(NamedTuple):
    """The median of the recent updates' nll a token, their spread, and from where on an update stands out."""

    nll: float
    spread: float
    limit: float


def usual(recent: list[list[float]]) -> Usual | None:
    """What is usual in updates (nll a token, target tokens); None where there are too few to tell."""
    if len(recent) < threshold("spike_first"):
        return None
    nlls = [nll for nll, _ in recent]
    middle = median(nlls)
    spread = max(LEAST_SPREAD, TO_DEVIATION * median(abs(b - a) for a, b in pairwise(nlls)))
    return Usual(middle, spread, middle + max(threshold("spike_spreads") * spread, threshold("spike_rise")))


def note_update(recent: list[list[float]], nll: float, num_tokens: int) -> Usual | None:
    """Add an update to the recent ones, of which the oldest goes. Returns what was usual before where the update stands
    out, and the one before it did not: a loss that stays high is one spike.
    """
    before = usual(recent)
    stands_out = (
        before is not None
        and nll > before.limit
        and recent[-1][0] <= before.limit
        and num_tokens >= threshold("spike_tokens") * median(tokens for _, tokens in recent)
    )
    if math.isfinite(nll):  # fp16 may skip an update that is not
        recent.append([nll, num_tokens])
    del recent[: -int(threshold("spike_window"))]
    return before if stands_out else None
