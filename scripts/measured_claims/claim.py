"""A claim, what was found when it was measured, and the settings of a measurement."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Verdict(StrEnum):
    """`UNDECIDED`: the difference is smaller than its own error, so models and corpus of this size cannot tell."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "not at this size"


@dataclass(frozen=True)
class Finding:
    """The figures of a measurement as a table, and what they decide."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    verdict: Verdict


@dataclass(frozen=True)
class Settings:
    """`work`: where trainings are kept. `small`: the least sizes with which a measurement means anything, for tests."""

    work: Path
    seeds: tuple[int, ...] = (1, 2, 3)
    steps: int = 500
    small: bool = False


@dataclass(frozen=True)
class Claim:
    """An entry of `CLAIMS`, named as its function. `says` is the claim in our words, `source` where it is made,
    `threshold` what the figures must be for it to hold. `trains`: whether models are trained for it.
    """

    measure: Callable[[Settings], Finding]
    source: str
    says: str
    threshold: str
    trains: bool = False

    @property
    def name(self) -> str:
        return self.measure.__name__


def decided(holds: bool) -> Verdict:
    """For figures without a chance in them, or with differences far beyond it."""
    return Verdict.HOLDS if holds else Verdict.FAILS


def compared(better: Sequence[float], worse: Sequence[float]) -> Verdict:
    """Whether the first mean is larger by more than twice the standard error of the difference; one value each has no
    error that is known, and decides nothing.
    """
    if min(len(better), len(worse)) < 2:
        return Verdict.UNDECIDED
    error = sum(statistics.variance(values) / len(values) for values in (better, worse)) ** 0.5
    difference = statistics.mean(better) - statistics.mean(worse)
    if abs(difference) <= 2 * error:
        return Verdict.UNDECIDED
    return decided(difference > 0)


def not_larger(one: Sequence[float], other: Sequence[float]) -> Verdict:
    """Whether the first mean is not larger by more than the error; one value each decides nothing here either."""
    if min(len(one), len(other)) < 2:
        return Verdict.UNDECIDED
    return decided(compared(one, other) is not Verdict.HOLDS)
