"""What is recorded of a run, entry by entry in the order of the training, and what a rule finds in it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from transformer_mt.diagnosing.thresholds import threshold
from transformer_mt.paths import exists
from transformer_mt.storage.metrics_lines import entry_of
from transformer_mt.storage.run_folder import RunFolder

Entry = dict[str, Any]


class _Pair(BaseModel):
    """A pair of a spike: its place, its nll a token, its texts."""

    where: str
    nll: float | None
    src: str
    tgt: str


class _Spike(BaseModel):
    """What rules read of an entry `spike`."""

    nll: float
    usual: float
    spread: float
    num_pairs: int
    pairs: list[_Pair]


class _Look(BaseModel):
    """What rules read of an entry `look`. All else are figures of `output_figures`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]
    epoch: int
    vocabulary: Annotated[int, Field(ge=2)]
    sharpness: dict[str, list[float]] | None = None
    contributions: dict[str, list[float]] | None = None
    unmoved: dict[str, float] | None = None
    relative_update: float | None = None


_METRICS = TypeAdapter(dict[str, float | None])
# In the order in which those of one step are written.
KINDS = {"spike": TypeAdapter(_Spike), "train": _METRICS, "validation": _METRICS, "look": TypeAdapter(_Look)}
_ORDER = list(KINDS)


@dataclass(frozen=True)
class Finding:
    """What a rule saw: a sentence, and its figures by name."""

    seen: str
    figures: dict[str, Any]


@dataclass(frozen=True)
class Level:
    """A level of the loss, and the step of its last line."""

    nll: float
    step: int


@dataclass
class History:
    """The entries so far by kind. `levels` has for each `train` entry the median nll of the last five lines of the log
    (see `entries_in`), or of as many as there are, and `lowest` is the lowest of them before the newest, where five are
    there. `ratio` is the greatest relative update so far.

    A `train` entry gets `seconds`, those of its steps; a `validation` entry `train_nll`, the level at that time.
    `elapsed` has for each `train` entry the sum of these seconds up to it; `num_unpaced` entries end with the last one
    that does not tell them.
    """

    entries: dict[str, list[Entry]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    levels: list[Level] = field(default_factory=list)
    lowest: Level | None = None
    ratio: float | None = None
    elapsed: list[float] = field(default_factory=list)
    num_unpaced: int = 0

    def add(self, kind: str, entry: Entry) -> None:
        """One more entry."""
        entry = dict(entry)
        if kind == "train":
            entry["seconds"] = self._seconds(entry)
            self.entries[kind].append(entry)
            self.elapsed.append((self.elapsed or [0.0])[-1] + (entry["seconds"] or 0.0))
            if entry["seconds"] is None:
                self.num_unpaced = len(self.elapsed)
            self._add_level(entry["step"])
            return
        if kind == "validation":
            entry["train_nll"] = self.levels[-1].nll if self.levels else None
        if kind == "look" and (ratio := entry.get("relative_update")) is not None:
            self.ratio = max(ratio, self.ratio or 0.0)
        self.entries[kind].append(entry)

    def _add_level(self, step: int) -> None:
        number = self.entries_in(threshold("lines"))
        last = [line.get("nll") for line in self.entries["train"][-number:]]
        if len(self.levels) >= number and (self.lowest is None or self.levels[-1].nll < self.lowest.nll):
            self.lowest = self.levels[-1]
        self.levels.append(Level(median(math.inf if nll is None else nll for nll in last), step))

    def entries_in(self, lines: float) -> int:
        """How many `train` entries make so many lines of the log. Those of a few updates are each a part of a line."""
        before, newest = [0, 0, *(entry["step"] for entry in self.entries["train"][-2:])][-2:]
        return int(lines) * math.ceil(threshold("line") / max(1, newest - before))

    def _seconds(self, entry: Entry) -> float | None:
        """The seconds of the steps since the line before."""
        tokens, pace = entry.get("num_tokens"), entry.get("tokens_per_second")
        before = self.entries["train"][-1].get("num_tokens") if self.entries["train"] else 0
        return max(0.0, (tokens - before) / pace) if tokens is not None and before is not None and pace else None

    def last(self, kind: str, name: str, number: int) -> list[Any] | None:
        """The figures of this name in the last entries of a kind; None where there are fewer, or one lacks it."""
        found = [entry.get(name) for entry in self.entries[kind][-number:]]
        return None if len(found) < number or any(value is None for value in found) else found

    def newest(self, kind: str) -> Entry:
        """The newest entry of a kind, of which there must be one."""
        return self.entries[kind][-1]


@dataclass(frozen=True)
class Recorded:
    """The entries of a run in their order. `has_recorder`: not only metrics were recorded. `num_broken` lines could
    not be read.
    """

    entries: list[tuple[str, Entry]]
    has_recorder: bool
    num_broken: int

    @property
    def step(self) -> int:
        """The last step that is told of."""
        return max((entry["step"] for _, entry in self.entries), default=0)


def read_recorded(run: RunFolder) -> Recorded:
    """What is recorded of a run so far. An unfinished last line is passed over. Raises OSError."""
    found, num_broken = [], 0
    has_recorder = exists(run.recorder)
    for path in (run.metrics, run.recorder) if has_recorder else (run.metrics,):
        for entry in _lines(path):
            if entry is None:
                num_broken += 1
            elif entry["kind"] in KINDS:
                found.append((entry.pop("kind"), entry))
    found.sort(key=lambda one: (one[1]["step"], _ORDER.index(one[0])))
    return Recorded(found, has_recorder, num_broken)


def _lines(path: Path) -> Iterator[Entry | None]:
    """The entries of a file, which has none before it is begun; None for a line that is none."""
    text = path.read_text(encoding="utf-8", errors="replace") if exists(path) else ""
    for line in filter(None, text.split("\n")[:-1]):
        entry = entry_of(line)
        if entry is not None and entry["kind"] in KINDS:
            figures = {name: value for name, value in entry.items() if name != "kind"}
            try:
                KINDS[entry["kind"]].validate_python(figures, strict=True)  # "3.5" in quotes is no number to count with
            except ValidationError:
                entry = None
        yield entry
