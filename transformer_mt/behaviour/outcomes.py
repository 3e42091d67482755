"""What came of expectations in the translations of one or two runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transformer_mt.behaviour.expectations import Expectation
from transformer_mt.behaviour.kinds import Case
from transformer_mt.behaviour.planning import Planned
from transformer_mt.decoding.translation import Translated


class Failure(NamedTuple):
    """A case that did not come out as expected."""

    source: str
    output: str
    expected: str


@dataclass(frozen=True)
class Outcome:
    """What came of an expectation: for each run, which cases passed and the failures, both in the cases' order."""

    expectation: Expectation
    num_cases: int
    untested: str
    passed: list[list[bool]]
    failures: list[list[Failure]] = field(repr=False)

    def rate(self, run: int) -> float:
        """The share of the cases that passed."""
        return sum(self.passed[run]) / self.num_cases

    @property
    def is_reached(self) -> bool:
        """Whether every run passes as many cases as the expectation asks for. What it asks of no case is not."""
        minimum = self.expectation.minimum
        if minimum is None:
            return True
        return self.num_cases > 0 and all(self.rate(run) >= minimum for run in range(len(self.passed)))

    @property
    def p_value(self) -> float:
        """How likely two runs of equal merit would differ so much on these cases, by McNemar's exact test."""
        first, second = self.passed
        only_first = sum(a and not b for a, b in zip(first, second, strict=True))
        only_second = sum(b and not a for a, b in zip(first, second, strict=True))
        number, least = only_first + only_second, min(only_first, only_second)
        return min(1.0, 2 * sum(math.comb(number, k) for k in range(least + 1)) / 2**number)


def outcomes(planned: Sequence[Planned], translations: Sequence[Mapping[str, Translated]]) -> list[Outcome]:
    """What came of each expectation in each run."""
    found = []
    for one in planned:
        passed, failures = [], []
        for of_run in translations:
            judged = [_judge(case, of_run) for case in one.cases]
            passed.append([failure is None for failure in judged])
            failures.append([failure for failure in judged if failure is not None])
        found.append(Outcome(one.placed.expectation, len(one.cases), one.untested, passed, failures))
    return found


def _judge(case: Case, translations: Mapping[str, Translated]) -> Failure | None:
    translated = translations[case.source]
    other = "" if case.beside is None else translations[case.beside].text
    if case.holds(translated.text, other):
        return None
    wanted = case.wanted if case.beside is None else f"{case.wanted}: {other}"
    problem = f" (nothing was written: {translated.problem})" if translated.problem else ""
    return Failure(case.source, translated.text, wanted + problem)
