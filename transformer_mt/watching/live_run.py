"""What a run is at this moment, read from its folder alone: whether anybody trains it makes no difference."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass

from transformer_mt.config.loading import read_config
from transformer_mt.diagnosing.diagnoses import Diagnoses, Diagnosis
from transformer_mt.diagnosing.history import read_recorded
from transformer_mt.errors import UserError
from transformer_mt.pages.html_text import Html
from transformer_mt.paths import exists, is_dir
from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming.run_lock import is_trained_now
from transformer_mt.training.resuming.training_state import TrainingState, checked_state
from transformer_mt.watching.event_files import EventFiles
from transformer_mt.watching.metrics_tail import MetricsTail
from transformer_mt.watching.page_parts import Now, parts

REST_SECONDS = 1.0  # between two looks at the folder, however many pages ask
DIAGNOSED_AFTER = 10.0  # seconds at least: a long record takes some time to be judged from its beginning


@dataclass(frozen=True)
class Look:
    """The parts of the page by their names, and what tells one look from another."""

    version: str
    parts: dict[str, Html]


class LiveRun:
    """Follows the folder of a run. Raises UserError where it has no config that can be read."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._config_written = 0
        self._read_config()
        self.metrics = MetricsTail(run.metrics)
        self.events = EventFiles(run.path)
        self._lock = threading.Lock()
        self._diagnosed: list[Diagnosis] = []
        self._next_diagnosis = 0.0
        self._last: Look | None = None
        self._looked = 0.0

    def look(self) -> Look:
        """What there is to see now. A folder that cannot be read is told in the first part, and the rest stays."""
        with self._lock:
            if self._last is None or time.monotonic() - self._looked > REST_SECONDS:
                self._last = self._read()
                self._looked = time.monotonic()
            return self._last

    def picture(self, name: str) -> bytes | None:
        """The newest picture of that name, as PNG."""
        with self._lock:
            found = self.events.pictures.get(name)
        return None if found is None else found[1]

    def _read(self) -> Look:
        trouble = None
        state, training_state = "", None
        try:
            if not is_dir(self.run.path):
                raise UserError(f"{self.run.path} is gone. What it said last stands below.")
            self._read_config()
            self.metrics.update()
            self.events.update()
            training_state = _newest_state(self.run)
            state = self._state(training_state)
            self._diagnose()
        except UserError as error:
            trouble = str(error)
        except OSError as error:
            name = os.fsdecode(error.filename or self.run.path)
            trouble = f"{name} cannot be read: {error.strerror or error}. What was read last stands below."
        now = Now(
            self.run.path.name, state, self.config, self.metrics, self.events, training_state, self._diagnosed, trouble
        )
        found = parts(now)
        return Look(hashlib.sha256("\0".join(found.values()).encode()).hexdigest()[:16], found)

    def _read_config(self) -> None:
        """Where it is another one than before: a training that goes on may be longer."""
        written = self.run.config.stat().st_mtime_ns
        if written != self._config_written:
            self.config = read_config(self.run.config)
            self._config_written = written

    def _diagnose(self) -> None:
        if time.monotonic() < self._next_diagnosis:
            return
        self._diagnosed = list(Diagnoses.of(read_recorded(self.run).entries).found.values())
        self._next_diagnosis = time.monotonic() + DIAGNOSED_AFTER

    def _state(self, newest: TrainingState | None) -> str:
        if is_trained_now(self.run):
            return "training"
        if newest is None:
            return "stopped before its first checkpoint" if self.metrics.last else "not begun"
        reason = newest.reason_of_the_end(self.config)
        return "stopped" if reason is None else f"finished: {reason}"


def _newest_state(run: RunFolder) -> TrainingState | None:
    """That of the newest checkpoint that is there, or None. A training may delete one just now."""
    for step in reversed(run.steps()):
        if exists(run.step(step) / STATE):
            return checked_state(run, step)
    return None
