"""The clock of a training: the time of its steps, the sums for the lines of metrics, and the time left."""

import time
from collections import deque
from dataclasses import dataclass

from transformer_mt.config.schema import RunConfig
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.running_update import UpdateResult

FIRST_STEPS = 20  # fewer are not enough to estimate the time left
RECENT_SECONDS = 60.0  # the steps of the last so many seconds, FIRST_STEPS at least, set the pace of those to come
NOTABLE_CHANGE, NOTABLE_MINUTES = 1 / 3, 1.0  # the time left is said again where it changed by both
LONG_MINUTES = 30


@dataclass
class Pauses:
    """The validations of this start, or its saves. `last` is the step after which the last one came."""

    seconds: float = 0.0
    number: int = 0
    last: int = -1

    def add(self, seconds: float, step: int) -> None:
        """Count one more, or more seconds of one that was counted after the same step."""
        self.seconds += seconds
        self.number += step != self.last
        self.last = step


class Meter:
    """Adds up the time of the run in `state`, and the updates since the last line of metrics in the state's window.

    The time left is the number of passes left times the recent pace, with validations and saves at their mean cost so
    far. A step has one pass, or two under `training.consistency`. The pace leaves out steps that compiled something,
    because later steps do not.

    How many updates an epoch has is told by the loop, where it is known. An epoch of both directions has twice as many
    as the others, so they are kept for each pass over the pairs.
    """

    def __init__(self, config: RunConfig, state: TrainingState) -> None:
        self.config = config
        self.state = state
        self._updates_a_pass: float | None = None
        self.num_timed = 0  # steps of this start that compiled nothing
        self._first_step = state.step
        self._recent: deque[tuple[float, float]] = deque()  # seconds and passes of a step
        self._recent_seconds = self._recent_passes = 0.0
        self._validations, self._saves = Pauses(), Pauses()
        self._began_to_say = False
        self._said: tuple[float, float] | None = None  # minutes left, and those that the run had taken then
        self._clock = time.perf_counter()

    # The clock

    def tick(self) -> float:
        """Add the seconds since the last tick to the time of the run, and return them."""
        before = self._clock
        self._clock = time.perf_counter()
        seconds = self._clock - before
        self.state.elapsed_seconds += seconds
        return seconds

    def skip(self) -> None:
        """Leave out the time since the last tick, in which the process was halted. A signal may call this anywhere."""
        self._clock = time.perf_counter()

    def know_epoch(self, num_updates: int) -> None:
        """The updates of the current epoch."""
        self._updates_a_pass = num_updates / self._passes_from(self.state.epoch, self.state.epoch + 1)

    def _passes_from(self, first_epoch: int, end_epoch: int) -> int:
        return self.config.data.num_passes(first_epoch, end_epoch)

    def count_step(self, seconds: float, waited: float, compiled: bool, settling: bool) -> None:
        """Count the seconds of a step, of which it `waited` some for data. `compiled`: something was compiled in it.
        `settling`: the step was counted before, and these seconds went into waiting for its result.
        """
        self._add(seconds=seconds, data_wait=waited)
        if compiled or (settling and not self._recent):
            return
        if settling:
            before, passes = self._recent.pop()
            self._recent.append((before + seconds, passes))
        else:
            passes = self.config.training.passes_from(self.state.step, 1)
            self._recent.append((seconds, passes))
            self._recent_passes += passes
            self.num_timed += 1
        self._recent_seconds += seconds
        while len(self._recent) > FIRST_STEPS and self._recent_seconds - self._recent[0][0] >= RECENT_SECONDS:
            before, passes = self._recent.popleft()
            self._recent_seconds -= before
            self._recent_passes -= passes

    def count_validation(self) -> None:
        """Count the time since the last tick as that of a validation."""
        self._validations.add(self.tick(), self.state.step)

    def count_save(self) -> None:
        """Count the time since the last tick as that of a save. A save right after a validation is part of that."""
        pauses = self._validations if self._validations.last == self.state.step else self._saves
        pauses.add(self.tick(), self.state.step)

    # The lines of metrics

    def count_update(self, result: UpdateResult) -> None:
        """Count an update that is done."""
        self.state.num_tokens += result.num_tokens
        self._add(
            loss=result.loss,
            nll=result.nll,
            num_tokens=result.num_tokens,
            num_cells=result.num_cells,
            num_padding=result.num_padding,
            load_balancing=result.load_balancing or 0.0,
            split_micro_batches=result.num_split,
            skipped_steps=result.skipped,
        )
        if result.divergence is not None:  # some steps of a line may have had one pass
            self._add(divergence=result.divergence, compared_tokens=result.num_tokens)

    def _add(self, **values: float) -> None:
        window = self.state.window
        for name, value in values.items():
            window[name] = window.get(name, 0.0) + value

    def take_line(self, result: UpdateResult) -> dict[str, float]:
        """The metrics of the updates since the last line; `result` is that of the newest. A new line begins."""
        state, window = self.state, self.state.window
        metrics = {
            "loss": window["loss"] / window["num_tokens"],
            "nll": window["nll"] / window["num_tokens"],
            "lr": result.lr,
            "grad_norm": result.grad_norm,
            "padding": window["num_padding"] / window["num_cells"],
            "epoch": state.epoch,
            "num_tokens": state.num_tokens,
            "tokens_per_second": window["num_tokens"] / window["seconds"],
            "data_wait": window["data_wait"] / window["seconds"],
            "elapsed_seconds": state.elapsed_seconds,
        }
        if result.load_balancing is not None:
            metrics["load_balancing"] = window["load_balancing"] / window["num_tokens"]
        if "divergence" in window:
            metrics["divergence"] = window["divergence"] / window["compared_tokens"]
        if state.precision == "fp16":
            metrics["skipped_steps"] = int(window["skipped_steps"])
        if window["split_micro_batches"]:
            metrics["split_micro_batches"] = int(window["split_micro_batches"])
        window.clear()
        return metrics

    # The time left

    @property
    def seconds_a_step(self) -> float:
        """The pace of the recent steps, without validations and saves."""
        return self.config.training.passes_from(self.state.step, 1) * self._recent_seconds / self._recent_passes

    @property
    def minutes_left(self) -> float | None:
        """The minutes to the limit that comes first. None while there is no limit, or while its time is not known."""
        training, steps = self.config.training, self._steps_left()
        if steps is not None and steps <= 0:  # known even where no pace is yet
            return 0.0
        limits = []
        if training.max_minutes is not None:
            limits.append(training.max_minutes - self.state.elapsed_seconds / 60)
        if self.num_timed >= FIRST_STEPS and steps is not None:
            passes = self.config.training.passes_from(self.state.step + 1, steps)
            pace = self._recent_seconds / self._recent_passes
            limits.append((passes * pace + steps * self._pause_a_step()) / 60)
        return max(0.0, min(limits)) if limits else None

    def _steps_left(self) -> float | None:
        state, training = self.state, self.config.training
        limits: list[float] = []
        if training.max_steps is not None:
            limits.append(training.max_steps - state.step)
        if (of_epochs := self.updates_until_max_epochs(state.epoch)) is not None:
            limits.append(of_epochs - state.micro_batch / state.micro_batches_per_update)
        return min(limits, default=None)

    def updates_until_max_epochs(self, first_epoch: int) -> int | None:
        """The updates from this epoch on; None while the length of an epoch or the end is not known."""
        most = self.config.training.max_epochs
        if most is None or self._updates_a_pass is None:
            return None
        return round(self._updates_a_pass * self._passes_from(first_epoch, most))

    def _pause_a_step(self) -> float:
        """The seconds that validations and saves add to a step: each is spread over the steps between two of them."""
        validation, seconds = self.config.validation, 0.0
        between = validation.every_steps
        if between is None and self._updates_a_pass is not None:
            epoch, number = self.state.epoch, validation.every_epochs or 1
            between = self._updates_a_pass * self._passes_from(epoch, epoch + number)
        for pauses, steps in ((self._validations, between), (self._saves, self.config.training.checkpoint_every_steps)):
            if pauses.number and steps:
                seconds += pauses.seconds / pauses.number / steps
            elif pauses.last > self._first_step:  # one right at the start, as after a resume, does not tell how many
                seconds += pauses.seconds / (pauses.last - self._first_step)
        return seconds

    def left(self) -> str:
        """The time left in words, for the bar and the console. Empty at the end, and while it is not known."""
        minutes = self.minutes_left
        if not minutes:
            return ""
        about = "at most" if self.num_timed < FIRST_STEPS or self._steps_left() is None else "about"
        return f"{about} {duration(minutes)} left"

    def say_left(self) -> str:
        """What `left` returns, noted as said: `news` is silent until the time left has changed."""
        minutes = self.minutes_left
        if minutes is not None and self.num_timed >= FIRST_STEPS:
            self._said = minutes, self.state.elapsed_seconds / 60
        return self.left()

    def news(self) -> list[str]:
        """The lines to say after a step. The time left is said when enough steps were timed to estimate it, and again
        whenever it has changed by a third and by a minute since it was said last.
        """
        if self.num_timed < FIRST_STEPS:
            return []
        minutes, pace = self.minutes_left, f"{self.seconds_a_step:.2f} seconds a step"
        if not self._began_to_say:
            return self._first_news(minutes, f"{pace} over the first {FIRST_STEPS}")
        if not minutes or self._said is None:
            return []
        said, then = self._said
        expected = max(0.0, said - (self.state.elapsed_seconds / 60 - then))
        if abs(minutes - expected) <= max(NOTABLE_CHANGE * expected, NOTABLE_MINUTES):
            return []
        more = f", and {pause:.2f} for validations and saves" if (pause := self._pause_a_step()) else ""
        return [f"{self.say_left()}, not {duration(expected)}: {pace} now{more}"]

    def _first_news(self, minutes: float | None, pace: str) -> list[str]:
        self._began_to_say = True
        if minutes is None:  # a stream: the length of its epoch is not known
            return [pace]
        self.say_left()
        lines = [f"{pace}: about {duration(minutes)} left"]
        # A user who gave a number of minutes knows how long the training takes.
        on_cpu = self.state.device.partition(":")[0] == "cpu"
        if on_cpu and minutes > LONG_MINUTES and self.config.training.max_minutes is None:
            lines.append(
                "That is long because there is no GPU. A model sized for a CPU: tmt train --config quickstart.yaml"
            )
        return lines


def duration(minutes: float) -> str:
    """A length of time in words."""
    if minutes < 1.5:
        return f"{max(60 * minutes, 0):.0f} s"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} hours" if minutes < 72 * 60 else f"{minutes / 60 / 24:.1f} days"
