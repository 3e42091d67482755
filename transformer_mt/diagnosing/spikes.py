"""Updates whose loss stands out from those before them. What is usual is kept in the state of a training."""

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from transformer_mt.diagnosing.thresholds import threshold

# Times the median distance of neighbours: the standard deviation of independent normal draws. A loss that falls adds
# little to such distances, and much to those from the median.
TO_DEVIATION = 1.4826 / math.sqrt(2)
LEAST_SPREAD = 1e-6


@dataclass(frozen=True)
class Usual:
    """The median of the recent updates' nll a token, their spread, and from where on an update stands out."""

    nll: float
    spread: float
    limit: float


def usual(memory: dict[str, Any]) -> Usual | None:
    """What is usual by the recent updates, (nll a token, target tokens) each; None where there are too few to tell."""
    if len(recent := memory.get("recent", [])) < threshold("spike_window"):
        return None
    nlls = [nll for nll, _ in recent]
    middle = median(nlls)
    spread = max(LEAST_SPREAD, TO_DEVIATION * median(abs(b - a) for a, b in pairwise(nlls)))
    rises = (
        threshold("spike_spreads") * spread, threshold("spike_rise"), threshold("spike_excess") * memory["excess"],
    )  # fmt: skip
    return Usual(middle, spread, middle + max(rises))


def note_update(memory: dict[str, Any], nll: float, num_tokens: int) -> Usual | None:
    """Add an update to those that the memory, which begins empty, has of a training. Returns what was usual before
    where the update stands out, and the one before it did not: a loss that stays high is one spike.

    The memory is JSON: `recent` updates, `excess`, the most by which one was above the usual without standing out,
    which fades, and `num_spikes`. A batch of the shortest sentences, say, has that excess once an epoch.
    """
    memory.setdefault("recent", [])
    memory.setdefault("excess", 0.0)
    memory.setdefault("num_spikes", 0)
    before, recent, is_new = usual(memory), memory["recent"], False
    if before is not None and nll > before.limit:
        is_rest = num_tokens < threshold("spike_tokens") * median(tokens for _, tokens in recent)
        is_new = recent[-1][0] <= before.limit and not is_rest
    elif before is not None:
        memory["excess"] = max(threshold("spike_memory") * memory["excess"], nll - before.nll)
    if math.isfinite(nll):  # fp16 may skip an update that is not
        recent.append([nll, num_tokens])
    del recent[: -int(threshold("spike_window"))]
    memory["num_spikes"] += is_new
    return before if is_new else None
