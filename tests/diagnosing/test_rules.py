"""Each rule on records made by hand: what makes it hold, and what is just not enough."""

import math
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.diagnosing.diagnoses import Diagnoses
from transformer_mt.diagnosing.history import Entry, History
from transformer_mt.diagnosing.machine import slow_machine
from transformer_mt.diagnosing.output_figures import output_figures, repeats
from transformer_mt.diagnosing.rules import RULES
from transformer_mt.diagnosing.spikes import note_update
from transformer_mt.diagnosing.thresholds import THRESHOLDS, threshold

Entries = list[tuple[str, Entry]]
V = 1000  # ln V is 6.9


def lines(*nlls: float | None, start: int = 1, every: int = 20, **more: Any) -> Entries:
    """Lines of the log, each after `every` updates; 100 tokens a second, and 1,000 tokens, 10 seconds, a line."""
    first = {"lr": 1e-3, "tokens_per_second": 100.0, "data_wait": 0.01}
    return [
        ("train", {"step": every * number, "nll": nll, "num_tokens": 1000 * number, **first, **more})
        for number, nll in enumerate(nlls, start)
    ]


def look(step: int, **figures: Any) -> tuple[str, Entry]:
    return "look", {"step": step, "epoch": 1, "vocabulary": V, **figures}


def names(entries: Entries) -> set[str]:
    return set(Diagnoses.of(entries).found)


def outputs(step: int, **figures: float) -> tuple[str, Entry]:
    usual = {name: 0.0 for what in ("copies", "empty", "repeating", "same") for name in (what, f"reference_{what}")}
    return look(step, **{"num_outputs": 100, "length_ratio": 1.0, **usual, **figures})


def validations(*scores: tuple[float, float, float]) -> Entries:
    """Of each the nll of a training's line, the validation's nll and its BLEU."""
    found: Entries = []
    for step, (train, nll, bleu) in enumerate(scores, start=1):
        found += [*lines(train, start=step), ("validation", {"step": step, "nll": nll, "bleu": bleu})]
    return found


def paced(*paces: tuple[int, float]) -> Entries:
    """So many lines of 10,000 tokens each at each pace."""
    found: Entries = []
    for number, pace in paces:
        for _ in range(number):
            step = len(found) + 1
            entry = {"step": step, "nll": 2.0, "num_tokens": 10_000 * step, "data_wait": 0.0}
            found.append(("train", {**entry, "tokens_per_second": pace}))
    return found


SPIKE = ("spike", {"step": 9, "nll": 9.0, "usual": 3.0, "spread": 0.1, "num_pairs": 1, "pairs": []})
STUCK = lines(*15 * [5.0])
LEARNED = lines(*5 * [2.7])  # below 0.4 ln V = 2.76
NOT_YET = lines(*5 * [2.8])
HEADS = {"encoder.layers.0.self_attn": [0.3, 0.5], "decoder.layers.0.cross_attn": [0.9, 0.4]}

CASES: list[tuple[str, str, Entries, bool]] = [
    ("loss_spike", "an entry", [SPIKE], True),
    ("loss_spike", "none", lines(3.0, 9.0, 3.0), False),
    ("lr_too_high", "rises and stays", lines(9, 6, 5, 3, 3, 3, 3, 3, 4, 4, 4), True),
    ("lr_too_high", "updates rise and stay", lines(*100 * [3], *60 * [4], every=1), True),
    ("lr_too_high", "five updates rise", lines(*100 * [3], *5 * [4], every=1), False),
    ("lr_too_high", "updates, stuck", [*lines(*330 * [5.0], every=1), look(330, relative_update=0.1)], True),
    ("lr_too_high", "updates, a pause", [*lines(*130 * [5.0], every=1), look(130, relative_update=0.1)], False),
    ("lr_too_high", "two lines of five", lines(9, 6, 5, 3, 3, 3, 3, 3, 4, 4, 3, 3, 3), False),
    ("lr_too_high", "rises by less", lines(9, 6, 5, 3, 3, 3, 3, 3, 3.4, 3.4, 3.4, 3.4), False),
    ("lr_too_high", "no number any more", lines(9, 6, 5, 3, None, None, None), True),
    ("lr_too_high", "stuck, wild weights", [*STUCK, look(15, relative_update=0.1)], True),
    ("lr_too_high", "stuck, calm weights", [*STUCK, look(15, relative_update=0.01)], False),
    ("lr_too_high", "stuck, though low", [*lines(*15 * [3.0]), look(15, relative_update=0.1)], False),
    ("lr_too_high", "worse than chance, falls", [*lines(60, 50, 42, 40, 38), look(5)], True),
    ("lr_too_high", "worse than chance at first", [*lines(60, 50, 8, 7, 6), look(5)], False),
    ("lr_too_high", "falls slowly", [*lines(*(6 - i / 50 for i in range(15))), look(15, relative_update=0.1)], False),
    ("lr_too_low", "where it began", [*lines(6.9, 6.8), look(2, relative_update=1e-6)], True),
    ("lr_too_low", "has begun to learn", [*lines(5.0, 4.5), look(2, relative_update=1e-6)], False),
    ("lr_too_low", "moves", [*lines(6.9, 6.8), look(2, relative_update=1e-3)], False),
    ("lr_too_low", "has moved", [*lines(6.9), look(1, relative_update=0.1), *lines(6.9, start=2),
                                 look(2, relative_update=1e-6)], False),
    ("lr_too_low", "warm-up", [*lines(6.9, lr=1e-6), *lines(6.9, start=2, lr=2e-6),
                               look(2, relative_update=1e-6)], False),
    ("dead_heads", "one", [look(1, contributions={"a": [0.2, 0.0005]})], True),
    ("dead_heads", "weak", [look(1, contributions={"a": [0.2, 0.002]})], False),
    ("saturated_attention", "most", [look(1, sharpness={"a": [0.999, 1.0], "b": [1.0, 0.3]})], True),
    ("saturated_attention", "half", [look(1, sharpness={"a": [0.999, 1.0], "b": [0.5, 0.3]})], False),
    ("saturated_attention", "not quite", [look(1, sharpness={"a": [0.98, 0.98]})], False),
    ("unmoved_embeddings", "most", [look(1, unmoved={"encoder": 0.6, "decoder": 0.0})], True),
    ("unmoved_embeddings", "some", [look(1, unmoved={"encoder": 0.4, "decoder": 0.4})], False),
    ("unmoved_embeddings", "before an epoch", [look(1, epoch=0, unmoved={"encoder": 0.6})], False),
    ("overfitting", "rises", validations((3, 3, 9), (2, 3.1, 9), (1, 3.2, 9), (0.5, 3.4, 9)), True),
    ("overfitting", "for two alone", validations((3, 3, 9), (2, 3.3, 9), (1, 3.4, 9)), False),
    ("overfitting", "a little", validations((3, 3, 9), (2, 3.05, 9), (1, 3.05, 9), (0.5, 3.1, 9)), False),
    ("overfitting", "BLEU gains", validations((3, 3, 9), (2, 3.1, 10), (1, 3.2, 12), (0.5, 3.4, 11)), False),
    ("overfitting", "both rise", validations((1, 3, 9), (2, 3.1, 9), (3, 3.2, 9), (4, 3.4, 9)), False),
    ("copying", "many", [outputs(1, copies=0.3)], True),
    ("copying", "as the references", [outputs(1, copies=0.3, reference_copies=0.2)], False),
    ("copying", "of few outputs", [outputs(1, copies=1.0, num_outputs=4)], False),
    ("empty_outputs", "twice", [*LEARNED, outputs(5, empty=0.1), outputs(6, empty=0.1)], True),
    ("empty_outputs", "once", [*LEARNED, outputs(5), outputs(6, empty=0.1)], False),
    ("empty_outputs", "too early", [*NOT_YET, outputs(5, empty=0.1), outputs(6, empty=0.1)], False),
    ("repeating_outputs", "twice", [*LEARNED, outputs(5, repeating=0.3), outputs(6, repeating=0.3)], True),
    ("repeating_outputs", "the same", [*LEARNED, outputs(5, same=0.9), outputs(6, same=0.9)], True),
    ("repeating_outputs", "references too", [
        *LEARNED, *(outputs(step, repeating=0.3, reference_repeating=0.2) for step in (5, 6))], False),
    ("repeating_outputs", "too early", [*NOT_YET, outputs(5, same=0.9), outputs(6, same=0.9)], False),
    ("length_drift", "short", [*LEARNED, outputs(5, length_ratio=0.7), outputs(6, length_ratio=0.6)], True),
    ("length_drift", "long", [*LEARNED, outputs(5, length_ratio=1.4), outputs(6, length_ratio=1.5)], True),
    ("length_drift", "once", [*LEARNED, outputs(5, length_ratio=0.8), outputs(6, length_ratio=0.6)], False),
    ("length_drift", "to and fro", [*LEARNED, outputs(5, length_ratio=0.7), outputs(6, length_ratio=1.5)], False),
    ("length_drift", "too early", [*NOT_YET, outputs(5, length_ratio=0.5), outputs(6, length_ratio=0.5)], False),
    ("data_wait", "waits", lines(*5 * [2.0], data_wait=0.3), True),
    ("data_wait", "less", lines(*5 * [2.0], data_wait=0.2), False),
    ("data_wait", "for four lines", lines(*4 * [2.0], data_wait=0.9), False),
    ("data_wait", "not worth a word", lines(*5 * [2.0], data_wait=0.3, tokens_per_second=1500.0), False),
    ("slow_machine", "a minute", paced((10, 1000), (4, 500)), True),
    ("slow_machine", "less than a minute", paced((10, 1000), (2, 500)), False),
    ("slow_machine", "not as slow", paced((10, 1000), (8, 700)), False),
    ("slow_machine", "unknown before", paced((2, 1000), (5, 500)), False),
    ("slow_machine", "two passes", [*paced((10, 1000)), *(
        ("train", {**entry, "divergence": 0.1}) for _, entry in paced((10, 1000), (9, 500))[10:])], False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "entries", "holds"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_a_rule(name: str, case: str, entries: Entries, holds: bool) -> None:
    assert (name in names(entries)) is holds


@given(st.lists(st.tuples(st.sampled_from([10, 30, 60, 5000, None]), st.sampled_from([200.0, 100.0, 49.0, None]))))
def test_what_is_slow_is_found_without_a_walk_through_the_last_minute(steps: list[tuple[int, float]]) -> None:
    history, num_tokens = History(), 0
    for step, (tokens, pace) in enumerate([(1000, 100.0)] * 5 + steps, start=1):
        num_tokens += tokens or 0
        entry = {"step": step, "num_tokens": num_tokens if tokens else None, "tokens_per_second": pace}
        history.add("train", entry)
        found, expected = slow_machine(history), walked(history)
        assert (found is None) == (expected is None)
        if found is not None:
            assert found.figures == pytest.approx(expected)


def walked(history: History) -> dict[str, float] | None:
    """The figures of the lines of the last minute, walked through from the newest one."""
    lines, taken, seconds = history.entries["train"], 0, 0.0
    while seconds < threshold("slow_seconds"):
        taken += 1
        if taken > len(lines) or (took := lines[-taken]["seconds"]) is None:
            return None
        seconds += took
    before = [pace for line in lines[:-taken][-200:] if (pace := line["tokens_per_second"]) is not None]
    now = [line["tokens_per_second"] for line in lines[-taken:]]
    if len(before) < 5 or max(now) >= threshold("pace") * median(before):
        return None
    return {"tokens_per_second": median(now), "usual": median(before), "seconds": seconds}


def test_each_rule_has_a_record_that_it_holds_of_and_one_that_it_does_not() -> None:
    assert {(name, holds) for name, _, _, holds in CASES} == {
        (name, holds) for name in RULES for holds in (True, False)
    }


def test_a_head_has_the_number_that_it_has_in_a_trace() -> None:
    """There layers and heads count from 0."""
    found = Diagnoses.of([look(1, contributions={"encoder.layers.0.self_attn": [0.0, 0.2, 0.0005]})]).found
    dead = [f"encoder.layers.0.self_attn head {number}" for number in (0, 2)]
    assert found["dead_heads"].finding.figures == {"dead": dead, "num_heads": 3}


def test_a_finding_is_the_same_however_much_is_recorded_after_it() -> None:
    """A training says what it sees at once; a reader of the whole record must find the same at the same step."""
    entries = [*lines(9, 6, 5, 3, 3, 3, 3, 3, 4, 4, 4, 2, 2, 2, 2, 2, 2), *paced((10, 1000))]
    whole = Diagnoses.of(entries).found["lr_too_high"]
    early = Diagnoses.of(entries[:11]).found["lr_too_high"]
    assert (whole.first_step, whole.finding) == (early.first_step, early.finding)
    assert (early.last_step, early.holds) == (220, True)
    assert whole.holds is False


def test_every_threshold_is_used_and_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformer_mt.diagnosing import history, loss, machine, outputs, spikes, validation, weights

    asked = set()

    def noted(name: str) -> float:
        asked.add(name)
        return threshold(name)

    for module in (history, loss, machine, outputs, spikes, validation, weights):
        monkeypatch.setattr(module, "threshold", noted)
    for _, _, entries, _ in CASES:
        names(entries)
    note(*51 * [3.0], 9.0)
    assert asked == set(THRESHOLDS)
    assert all(one.reason for one in THRESHOLDS.values())


def note(*nlls: float, tokens: Callable[[int], int] = lambda i: 100) -> list[int]:
    """The places of the updates that stand out."""
    memory: dict[str, Any] = {}
    return [i for i, nll in enumerate(nlls) if note_update(memory, nll, tokens(i)) is not None]


def test_a_spike_is_the_first_update_that_stands_out() -> None:
    assert note(*50 * [3.0], 3.9, 3.0) == []  # by less than a nat
    assert note(*50 * [3.0], 4.1, 3.0, 3.0) == [50]
    assert note(*50 * [3.0], 6.0, 6.0, 6.0, 3.0, 6.0) == [50, 54]  # a loss that stays high is one spike
    assert note(*49 * [3.0], 9.0) == []  # too early to judge
    assert note(*50 * [3.0], 9.0, tokens=lambda i: 100 if i < 50 else 40) == []  # a rest of an epoch
    assert note(*50 * [3.0], math.inf, 3.0, 9.0) == [50, 52]
    assert note(*50 * [3.0], math.nan, 3.0, 9.0) == [52]


def test_what_is_usual_follows_a_loss_that_falls_and_its_spread() -> None:
    """Neighbours differ by 0.3, so the spread is 0.3 * 1.4826 / sqrt(2) = 0.3145, and 8 of them are 2.5."""
    noisy = [3.0 + 0.3 * (i % 2) for i in range(50)]
    assert note(*noisy, 5.6) == []
    assert note(*noisy, 5.7) == [50]
    falling = [9.0 - 0.1 * i for i in range(50)]
    assert note(*falling, 7.4) == []
    assert note(*falling, 7.8) == [50]


def test_what_recurs_with_every_epoch_is_no_spike() -> None:
    """One batch in 60 is harder, and more so as the rest is learned; garbage is harder still."""
    epochs = [[*59 * [usual], usual + more] for usual, more in ((2.0, 0.4), (1.5, 0.75), (1.0, 1.3), (0.5, 1.6))]
    nlls = [nll for epoch in epochs for nll in epoch]
    assert note(*nlls) == []
    assert note(*nlls, *20 * [0.5], 5.0) == [len(nlls) + 20]


def test_the_state_keeps_no_more_updates_than_the_window() -> None:
    memory: dict[str, Any] = {}
    for i in range(80):
        note_update(memory, float(i), 100)
    assert [nll for nll, _ in memory["recent"]] == [float(i) for i in range(30, 80)]


def texts() -> Iterator[tuple[str, bool]]:
    yield from (
        ("no no no no", True),
        ("no no no", False),
        ("ein ein ein Haus", False),
        ("....................", False),
    )
    yield from (("是的是的是的是的", True), ("- - - - - - - -", False), ("a b c a b c a b c a b c.", True), ("", False))
    yield from (("---------- no no no no", True), ("111111", False))


@pytest.mark.parametrize(("text", "expected"), texts())
def test_a_text_that_repeats(text: str, expected: bool) -> None:
    assert repeats(text) is expected


def test_figures_of_outputs() -> None:
    figures = output_figures(["One", "two", "x"], ["uno", "dos", "x", "more"], ["one ", "...", "x"])
    assert figures == {
        "num_outputs": 3,
        "copies": pytest.approx(2 / 3), "empty": pytest.approx(1 / 3), "repeating": 0.0, "same": pytest.approx(1 / 3),
        "reference_copies": pytest.approx(1 / 3), "reference_empty": 0.0, "reference_repeating": 0.0,
        "reference_same": pytest.approx(1 / 3),
        "length_ratio": pytest.approx(8 / 7),
    }  # fmt: skip
    assert output_figures([], [], []) == {}
