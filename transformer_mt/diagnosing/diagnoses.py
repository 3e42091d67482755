"""The diagnoses of a run: found entry by entry, each name once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from transformer_mt.diagnosing.history import Entry, Finding, History, Recorded
from transformer_mt.diagnosing.rules import RULES


@dataclass
class Diagnosis:
    """A rule that held: what it saw at first, and at which steps it held for the first and for the last time. `holds`:
    it still held when it was judged last.
    """

    name: str
    finding: Finding
    first_step: int
    last_step: int
    number: int = 1
    holds: bool = True

    @property
    def tries(self) -> str:
        """What to try."""
        return RULES[self.name].tries


class Diagnoses:
    """What the rules say of the entries that were added so far."""

    def __init__(self) -> None:
        self.history = History()
        self.found: dict[str, Diagnosis] = {}

    @classmethod
    def of(cls, entries: Iterable[tuple[str, Entry]]) -> Self:
        """The diagnoses of entries in their order."""
        diagnoses = cls()
        for kind, entry in entries:
            diagnoses.add(kind, entry)
        return diagnoses

    def add(self, kind: str, entry: Entry) -> list[Diagnosis]:
        """Add the next entry. Returns what it shows for the first time."""
        self.history.add(kind, entry)
        new = []
        for name, rule in RULES.items():
            if kind not in rule.kinds:
                continue
            finding, before, step = rule.find(self.history), self.found.get(name), entry["step"]
            if finding is None:
                if before is not None:
                    before.holds = False
            elif before is None:
                self.found[name] = Diagnosis(name, finding, step, step)
                new.append(self.found[name])
            else:
                before.last_step, before.holds, before.number = step, True, before.number + 1
        return new


def not_judged(recorded: Recorded) -> dict[str, str]:
    """The rules that could not be judged by what is recorded, each with the reason."""
    there = {(kind, name) for kind, entry in recorded.entries for name, value in entry.items() if value is not None}
    there |= {("recorder", "")} if recorded.has_recorder else set()
    return {
        name: _why_not(*missing, recorded)
        for name, rule in RULES.items()
        if (missing := next((need for need in rule.needs if need not in there), None))
    }


def _why_not(kind: str, figure: str, recorded: Recorded) -> str:
    if not recorded.has_recorder and kind in ("recorder", "look"):
        return "there is no recorder.jsonl, as in runs of older versions"
    if kind == "look" and any(other == "look" for other, _ in recorded.entries):
        return f"no validation recorded `{figure}`, which not every model and training has"
    what = {"train": "line of the log", "validation": "validation", "look": "validation"}[kind]
    return f"there is no {what} with `{figure}` yet"
