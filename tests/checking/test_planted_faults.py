"""Faults planted in real text at known lines, and real text as it is."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import planted_faults
import pytest
from marks import slow
from planted_faults import EACH, alarms, checked, clean_texts, planted_captions, scores, shifted

from transformer_mt.checking.check import CheckedSplit
from transformer_mt.checking.faults import languages
from transformer_mt.checking.faults.rules import BITS, RULES

NUM_PAIRS = 3000


def data_of(shared_data: Callable[[str], Path]) -> Path:
    return shared_data("multi30k").parent


@pytest.fixture(scope="module")
def planted(shared_data: Callable[[str], Path]) -> tuple[planted_faults.Planter, CheckedSplit]:
    return planted_captions(data_of(shared_data), NUM_PAIRS)


def test_every_fault_but_a_shift_is_planted(planted: tuple[planted_faults.Planter, CheckedSplit]) -> None:
    assert set(planted[0].lines) == {rule.name for rule in RULES} - {"shift"}


@pytest.mark.parametrize("fault", [rule.name for rule in RULES if rule.name != "shift"])
def test_planted_faults_are_found(fault: str, planted: tuple[planted_faults.Planter, CheckedSplit]) -> None:
    """The captions themselves have a few `&amp;`, which are no false alarms."""
    hits, false_alarms = scores(*planted)[fault]
    assert hits >= 0.85 * EACH
    assert false_alarms <= (5 if fault == "markup" else 1)


def test_no_shift_is_seen_where_there_is_none(planted: tuple[planted_faults.Planter, CheckedSplit]) -> None:
    assert planted[1].shifts == []


def test_without_the_library_the_check_says_so(
    shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other side's language is found all the same, by the corpus' own words."""
    monkeypatch.setattr(languages, "_identifier", lambda: None)
    pairs = clean_texts(data_of(shared_data), 1000)["en-de"]
    german, english = pairs[900][1], pairs[800][0]
    pairs[100], pairs[200] = (german, pairs[100][1]), (pairs[200][0], english)
    split = checked(pairs)
    assert languages.ABSENT in split.remarks
    assert np.flatnonzero(split.flags & BITS["language"]).tolist() == [100, 200]


@pytest.mark.parametrize("code", ["en-es", "en-zh"])
def test_clean_text_gives_hardly_an_alarm(code: str, shared_data: Callable[[str], Path]) -> None:
    pairs = clean_texts(data_of(shared_data), 1500)[code]
    assert alarms(checked(pairs))["any"] <= 0.01 * len(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("code", planted_faults.CLEAN)
def test_clean_text_of_every_language_gives_hardly_an_alarm(code: str, shared_data: Callable[[str], Path]) -> None:
    pairs = clean_texts(data_of(shared_data), 20_000)[code]
    assert alarms(checked(pairs))["any"] <= 0.01 * len(pairs)


@pytest.mark.parametrize(("code", "line", "shift"), [("en-es", 7, 1), slow("en-de", 777, -1)])
def test_a_shift_is_found_within_twenty_lines(
    code: str, line: int, shift: int, shared_data: Callable[[str], Path]
) -> None:
    pairs = shifted(clean_texts(data_of(shared_data), 1500)[code], line, shift)
    (part,) = checked(pairs).shifts
    assert part.shift == shift
    assert abs(part.first - (line + 1)) <= 20
    assert part.last == len(pairs)


@pytest.mark.parametrize(
    ("code", "num_pairs", "line", "shift"),
    [
        slow("en-ja", 2500, 1043, -1),  # windows of these short sentences look wrong a hundred lines behind the change
        ("en-ja", 2500, 140, 1),  # the stretch of which the aligner learned holds the change
        ("en-es", 2500, 2369, -1),
        slow("en-de", 1500, 1491, 1),  # nine lines before the end
    ],
)
def test_neither_weak_lines_nor_the_end_hide_a_shift(
    code: str, num_pairs: int, line: int, shift: int, shared_data: Callable[[str], Path]
) -> None:
    (part,) = checked(shifted(clean_texts(data_of(shared_data), num_pairs)[code], line, shift)).shifts
    assert part.shift == shift
    assert abs(part.first - (line + 1)) <= 20


@pytest.mark.slow
@pytest.mark.parametrize("code", planted_faults.CLEAN)
@pytest.mark.parametrize("shift", [1, -1])
@pytest.mark.parametrize("line", [15, 333, 1234, 1999, 2400])
def test_a_shift_is_found_in_every_language(
    code: str, line: int, shift: int, shared_data: Callable[[str], Path]
) -> None:
    part, *_ = checked(shifted(clean_texts(data_of(shared_data), 2500)[code], line, shift)).shifts
    assert part.shift == shift
    assert abs(part.first - (line + 1)) <= 20


def test_a_shift_that_ends_again_is_told_with_both_ends(shared_data: Callable[[str], Path]) -> None:
    """A line too many in the targets, and later one too few."""
    pairs = clean_texts(data_of(shared_data), 1500)["en-es"]
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    tgt = [*tgt[:500], tgt[3], *tgt[500:900], *tgt[901:]]
    (part,) = checked(list(zip(src, tgt, strict=True))).shifts
    assert part.shift == 1
    assert abs(part.first - 501) <= 20
    assert abs(part.last - 900) <= 20
