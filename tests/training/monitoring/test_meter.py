"""The time that is left, by a clock that only the tests move. The oracle is arithmetic by hand."""

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from toy import toy_config

from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.monitoring import meter
from transformer_mt.training.monitoring.meter import FIRST_STEPS, RECENT_SECONDS, Meter, duration
from transformer_mt.training.monitoring.monitor import Monitor
from transformer_mt.training.resuming.training_state import TrainingState

EVERY, SAVE_EVERY = 100, 50


class Training:
    """What a loop tells its meter; `said` is what the console would show of it."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        device: str = "cuda",
        every: int | None = EVERY,
        both: int = 0,
        **limits: object,
    ) -> None:
        self.now = 0.0
        patch.setattr(meter, "time", SimpleNamespace(perf_counter=lambda: self.now))
        config = toy_config(
            Path("nowhere"),
            training={"max_steps": 1000, "checkpoint_every_steps": SAVE_EVERY, **limits},
            validation={"every_steps": every},
            data={"both_directions_epochs": both},
            tokenizer={"joint": both > 0},
        )
        self.state = TrainingState(device=device)
        self.meter = Meter(config, self.state)
        self.said: list[str] = []

    def steps(self, number: int, seconds: float, compiled: bool = False) -> None:
        for _ in range(number):
            self.now += seconds
            self.state.step += 1
            self.meter.count_step(self.meter.tick(), 0.0, compiled, settling=False)
            self.said += self.meter.news()

    def validation(self, seconds: float) -> None:
        self.now += seconds
        self.meter.count_validation()

    def save(self, seconds: float) -> None:
        self.now += seconds
        self.meter.count_save()

    @property
    def seconds_left(self) -> float:
        assert self.meter.minutes_left is not None
        return 60 * self.meter.minutes_left


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Training:
    return Training(monkeypatch)


def test_the_time_left_by_hand(training: Training) -> None:
    """880 steps of 2 s; each has a 100th of a validation of 30 s with its save of 5 s, and a 50th of a save of 4 s."""
    training.steps(50, 2)
    training.save(4)
    training.steps(50, 2)
    training.validation(30)
    training.save(5)
    training.steps(20, 2)
    assert training.seconds_left == pytest.approx(880 * (2 + 35 / 100 + 4 / 50))
    assert training.state.elapsed_seconds == pytest.approx(120 * 2 + 4 + 30 + 5)


@pytest.mark.parametrize(("start", "passes"), [(1, 2 * 960), (41, 2 * 960), (500, 960 + 501), (1000, 960 + 1)])
def test_steps_to_come_may_have_two_passes(monkeypatch: pytest.MonkeyPatch, start: int, passes: int) -> None:
    """Those before `start_step` have one pass of 2 s."""
    training = Training(monkeypatch, consistency={"kind": "simcut", "start_step": start})
    training.steps(min(start - 1, 40), 2)
    training.steps(40 - training.state.step, 4)
    assert training.seconds_left == pytest.approx(2 * passes)
    assert training.meter.seconds_a_step == (4 if start == 1 else 2)
    if start == 41:  # what was said holds
        told = len(training.said)
        training.steps(400, 4)
        assert training.seconds_left == pytest.approx(560 * 4)
        assert len(training.said) == told
        assert training.meter.seconds_a_step == 4


@pytest.mark.parametrize(("before", "after"), [(1.0, 2.0), (2.0, 1.0), (0.1, 1.5), (5.0, 10.0), (10.0, 5.0)])
def test_it_follows_a_load_that_changes(training: Training, before: float, after: float) -> None:
    """It is that of the new pace when a minute of steps was made at it, or twenty steps where they are slower."""
    training.steps(300, before)
    assert training.seconds_left == pytest.approx(700 * before)
    training.steps(max(FIRST_STEPS, round(RECENT_SECONDS / after) + 1), after)
    assert training.seconds_left == pytest.approx((1000 - training.state.step) * after)


def test_what_is_compiled_and_what_is_validated_is_no_pace(training: Training) -> None:
    for _ in range(3):
        training.steps(10, 1)
        training.steps(1, 70, compiled=True)
    assert training.seconds_left == pytest.approx(967)
    training.steps(67, 1)
    training.validation(500)
    assert training.meter.seconds_a_step == pytest.approx(1)
    assert training.seconds_left == pytest.approx(900 * (1 + 500 / EVERY))


def test_waiting_for_a_result_is_time_of_the_step_that_ordered_it(training: Training) -> None:
    for _ in range(40):
        training.steps(1, 1)
        training.now += 0.5
        training.meter.count_step(training.meter.tick(), 0.0, compiled=False, settling=True)
    assert training.seconds_left == pytest.approx(960 * 1.5)


def test_a_validation_right_after_a_resume_counts_as_one_in_a_hundred_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    training.state.step = 75
    training.meter = Meter(training.meter.config, training.state)
    training.steps(25, 1)
    training.validation(200)
    assert training.seconds_left == pytest.approx(900 * (1 + 200 / EVERY))


def test_a_validation_right_after_a_resume_does_not_tell_how_far_epochs_of_a_stream_are_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was cut short comes again before the first step. The next comes 80 steps later: 100 s in 80 steps."""
    training = Training(monkeypatch, every=None)
    training.validation(30)
    training.steps(80, 1)
    assert training.seconds_left == pytest.approx(920)
    training.validation(70)
    assert training.seconds_left == pytest.approx(920 * (1 + 100 / 80))


def test_it_is_said_first_and_then_when_it_has_changed_by_a_third(training: Training) -> None:
    training.steps(400, 2)
    assert training.said == ["2.00 seconds a step over the first 20: about 33 min left"]
    training.steps(100, 4)
    changes = training.said[1:]
    assert 1 <= len(changes) <= 3
    assert re.match(r"about 2\d min left, not (19|20) min: [23]\.\d\d seconds a step now$", changes[0])
    training.steps(400, 4)
    assert len(training.said) <= 4, "the estimate has changed by a factor of two in all"


def test_at_the_end_there_is_nothing_left_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last steps are faster than was thought, by more than a minute up to the very last."""
    training = Training(monkeypatch, max_steps=30)
    training.steps(20, 200)
    training.steps(10, 1)
    assert len(training.said) > 2
    assert all(line.startswith("about ") for line in training.said[2:])
    short = Training(monkeypatch, max_steps=4, max_minutes=10)  # its pace is never known
    short.steps(3, 1)
    assert short.meter.left().startswith("at most ")
    short.steps(1, 1)
    assert short.meter.left() == ""


def test_a_minute_more_or_less_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, max_steps=70)
    training.steps(30, 1)
    training.steps(40, 2)
    assert training.said == ["1.00 seconds a step over the first 20: about 50 s left"]


def test_what_a_validation_line_has_said_is_not_said_again(training: Training) -> None:
    training.steps(100, 2)
    training.validation(600)
    assert training.meter.say_left() == "about 2.0 hours left"
    training.steps(100, 2)
    assert len(training.said) == 1


def test_a_validation_that_turns_out_long_is_said(training: Training) -> None:
    training.steps(100, 2)
    training.validation(600)
    training.steps(1, 2)
    assert training.said[1:] == [
        "about 2.0 hours left, not 20 min: 2.00 seconds a step now, and 6.00 for validations and saves"
    ]


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, "about 33 min left"),
        ({"max_epochs": 2}, "about 3 min left"),  # 120 updates, 20 of them made
        ({"max_minutes": 2}, "about 80 s left"),
        ({"max_minutes": 500}, "about 33 min left"),
        ({"max_minutes": 2, "max_steps": None}, "at most 80 s left"),
        ({"max_epochs": 2, "max_steps": None}, "about 3 min left"),
        ({"max_epochs": 6, "both": 2}, "about 7 min left"),  # 60 + 60 + 4 of 30, 20 of them made
    ],
)
def test_the_bar_shows_what_is_left_to_the_limit_that_comes_first(
    monkeypatch: pytest.MonkeyPatch, limits: dict, left: str
) -> None:
    training = Training(monkeypatch, **limits)
    training.meter.know_epoch(60)
    training.state.micro_batches_per_update = 2
    training.state.micro_batch = 2 * FIRST_STEPS
    training.steps(FIRST_STEPS - 1, 2)
    at_most = "" if "max_minutes" not in limits else f"at most {duration(limits['max_minutes'] - 38 / 60)} left"
    assert training.meter.left() == at_most, "a pace is not known yet"
    training.steps(1, 2)
    assert training.meter.left() == left


def test_where_both_directions_end_the_time_left_does_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch that has just ended had twice as many updates as the next, whose plan is not there yet."""
    training = Training(monkeypatch, max_epochs=20, max_steps=None, both=10)
    training.meter.know_epoch(200)
    training.state.micro_batches_per_update = 1
    training.state.epoch, training.state.micro_batch = 9, 199
    training.steps(FIRST_STEPS, 2)
    assert training.meter.left() == "about 33 min left"
    training.state.epoch, training.state.micro_batch = 10, 0
    assert training.meter.left() == "about 33 min left"


def test_an_epoch_whose_length_is_not_known_has_a_pace_and_no_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, max_steps=None, max_epochs=3)
    training.steps(60, 2)
    assert training.said == ["2.00 seconds a step over the first 20"]
    assert (training.meter.left(), training.meter.minutes_left) == ("", None)


@pytest.mark.parametrize(
    ("device", "limits", "is_told"), [("cpu", {}, 1), ("cuda:0", {}, 0), ("cpu", {"max_minutes": 40}, 0)]
)
def test_a_way_out_is_told_where_it_takes_long_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, limits: dict, is_told: int
) -> None:
    training = Training(monkeypatch, device, **limits)
    training.steps(60, 10)
    assert sum("quickstart.yaml" in line for line in training.said) == is_told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("limits", [{}, {"max_steps": None, "max_epochs": 5}, {"max_steps": None, "max_minutes": 5}])
def test_the_bar_has_one_time_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limits: dict) -> None:
    """Ours, whatever the limit: tqdm's own, after a `<`, takes a validation for a slow step."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    config = toy_config(tmp_path, training=limits)
    monitor = Monitor(RunFolder(tmp_path), config, TrainingState())
    if "max_epochs" in limits:
        monitor.expect(50)
    monitor.bar.mininterval = 0
    monitor.advance("about 7 min left")
    monitor.bar.refresh()
    monitor.close()
    shown = terminal.getvalue().split("\r")[-1]
    assert "about 7 min left" in shown
    assert "<" not in shown


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (-1, "0 s"),
        (0.5, "30 s"),
        (1.4, "84 s"),
        (1.6, "2 min"),
        (89, "89 min"),
        (90, "1.5 hours"),
        (71 * 60, "71.0 hours"),
        (72 * 60, "3.0 days"),
    ],
)
def test_durations_are_told_in_the_unit_they_are_thought_of_in(minutes: float, text: str) -> None:
    assert duration(minutes) == text
