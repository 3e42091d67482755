"""What came of tests, as lines for a terminal and as JSON."""

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from transformer_mt.behaviour.kinds import KINDS
from transformer_mt.behaviour.outcomes import Failure, Outcome
from transformer_mt.behaviour.planning import SEED
from transformer_mt.data.word_splitting import printable
from transformer_mt.inspect.text_table import column_width, fit

NAMES = "AB"
SURE = 0.05


def lines_about(outcomes: Sequence[Outcome], runs: Sequence[str], num_examples: int) -> Iterator[str]:
    """The runs, a table with a row for each expectation, what was not tested, and examples of failures."""
    for name, run in zip(NAMES, runs, strict=False):
        yield f"{name}: {run}" if len(runs) > 1 else run
    width = column_width([one.expectation.name for one in outcomes], 44)
    heads = NAMES[: len(runs)] if len(runs) > 1 else ["passed"]
    last = f"{'B - A':>8}{'p':>8}" if len(runs) > 1 else ""
    yield f"{fit('', width)}  {'kind':17}{'cases':>6}{''.join(f'{head:>9}' for head in heads)}{last}{'minimum':>9}"
    yield from (_row(outcome, width) for outcome in outcomes)
    if len(runs) > 1:
        yield f"*: beyond chance, p < {SURE} by McNemar's exact test on the cases that one run alone passes"
    for outcome in outcomes:
        yield from _examples(outcome, num_examples)
    missed = [outcome.expectation.name for outcome in outcomes if not outcome.is_reached]
    if missed:
        yield ""
        yield f"below the minimum: {', '.join(map(printable, missed))}"


def _row(outcome: Outcome, width: int) -> str:
    expectation = outcome.expectation
    name = f"{fit(expectation.name, width)}  {expectation.kind:17}"
    minimum = "" if expectation.minimum is None else _percent(expectation.minimum)
    if outcome.untested:
        missed = "" if outcome.is_reached else f", and {minimum} is the minimum"
        return f"{name} not tested: {outcome.untested}{missed}"
    runs = range(len(outcome.passed))
    cells = "".join(f"{_percent(outcome.rate(run)):>9}" for run in runs)
    if len(outcome.passed) > 1:
        star = "*" if outcome.p_value < SURE else ""
        cells += f"{100 * (outcome.rate(1) - outcome.rate(0)):>+8.1f}{outcome.p_value:>7.3f}{star:1}"
    return f"{name}{outcome.num_cases:>6,}{cells}{minimum:>9}{'' if outcome.is_reached else '  not reached'}".rstrip()


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _examples(outcome: Outcome, num_examples: int) -> Iterator[str]:
    several = len(outcome.failures) > 1
    for name, failures in zip_longest(NAMES[: len(outcome.failures)], outcome.failures):
        if failures and num_examples:
            shown = failures[:num_examples]
            of = f" of {len(failures):,}" if len(failures) > len(shown) else ""
            yield ""
            yield (
                f"{printable(outcome.expectation.name)}{f', {name}' * several}: {len(shown)}{of} "
                f"failure{'s' * (len(failures) > 1)}"
            )
            for failure in shown:
                yield from _failure(failure)


def _failure(failure: Failure) -> Iterator[str]:
    for name, text in zip(failure._fields, failure, strict=True):
        yield f"  {name:9} {printable(text)}".rstrip()


def as_json(outcomes: Sequence[Outcome], runs: Sequence[str], num_examples: int) -> str:
    """All of it as one JSON object, with `num_examples` failures of each expectation and run."""
    return json.dumps(
        {
            "runs": list(runs),
            "seed": SEED,
            "is_reached": all(outcome.is_reached for outcome in outcomes),
            "expectations": [_as_object(outcome, num_examples) for outcome in outcomes],
        },
        ensure_ascii=False,
    )


def _as_object(outcome: Outcome, num_examples: int) -> dict:
    expectation, runs = outcome.expectation, range(len(outcome.passed))
    tested = not outcome.untested
    return {
        "name": expectation.name,
        "kind": expectation.kind,
        "test": KINDS[expectation.kind].test,
        "minimum": expectation.minimum,
        "is_reached": outcome.is_reached,
        "num_cases": outcome.num_cases,
        "untested": outcome.untested,
        "num_passed": [sum(passed) for passed in outcome.passed],
        "pass_rates": [outcome.rate(run) for run in runs] if tested else [],
        "p_value": outcome.p_value if tested and len(runs) > 1 else None,
        "failures": [[failure._asdict() for failure in failures[:num_examples]] for failures in outcome.failures],
    }
