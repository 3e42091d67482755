"""metrics.jsonl and recorder.jsonl: a JSON object a line, each step once, whole lines only."""

import json
import math
import os
from pathlib import Path
from typing import Any

from transformer_mt.evaluation.metrics import HIGHER_IS_BETTER
from transformer_mt.paths import exists
from transformer_mt.storage.files import replace_file
from transformer_mt.storage.metrics_lines import entry_of, whole_lines
from transformer_mt.training.resuming.training_state import TrainingState

Curve = tuple[list[int], list[float]]  # steps, values
NO_CURVES = ("kind", "step", "epoch", "elapsed_seconds", "num_tokens")
OTHER = ("kind", "step", "epoch", "elapsed_seconds")  # fields of a validation's line that are no scores


class MetricsFile:
    """One of the files, open for writing. Lines that earlier starts wrote after the given state are cut off."""

    def __init__(self, path: Path, state: TrainingState) -> None:
        cut_back(path, state)
        self.file = path.open("ab", buffering=0)
        self.size = self.file.seek(0, os.SEEK_END)
        self.waiting = b""

    def add(self, kind: str, step: int, metrics: dict[str, Any]) -> None:
        """Write a line. Raises OSError where the disk is full; the line then waits for the next call."""
        self.waiting += (json.dumps({"kind": kind, "step": step, **finite(metrics)}) + "\n").encode()
        self._write()

    def sync(self) -> None:
        """Put every line on the disk. Raises OSError where that fails."""
        self._write()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file. Lines that still wait are lost; no checkpoint relies on them."""
        self.file.close()

    def _write(self) -> None:
        written = 0
        try:
            while written < len(self.waiting):
                written += self.file.write(self.waiting[written:])
        except OSError:
            os.truncate(self.file.fileno(), self.size)  # no half line
            raise
        self.size, self.waiting = self.size + written, b""


def finite(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics as they are written: None for a number that is not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }


def add_to_curves(line: str | bytes, curves: dict[str, Curve]) -> dict[str, Any] | None:
    """Put the numbers of a line of metrics.jsonl at the ends of their curves, which have the names of TensorBoard, such
    as `validation/bleu`. Returns the line's entry, its epoch an int and its seconds a float; None for a line that
    cannot be read, of which nothing is added. Numbers that are not finite are left out, as a missing one: a chart has
    no place for them, and JSON no name.
    """
    if (entry := entry_of(line)) is None:
        return None
    entry = finite(entry)
    try:
        entry |= {"epoch": int(entry.get("epoch", 0)), "elapsed_seconds": float(entry.get("elapsed_seconds", 0.0))}
        numbers = {name: float(entry[name]) for name in entry if name not in NO_CURVES and entry[name] is not None}
    except (ValueError, TypeError, OverflowError):
        return None
    for name, value in finite(numbers).items():
        if value is None:  # of a text such as "nan"
            continue
        steps, values = curves.setdefault(f"{entry['kind']}/{name}", ([], []))
        steps.append(entry["step"])
        values.append(value)
    return entry


def best_scores(curves: dict[str, Curve]) -> dict[str, tuple[float, int]]:
    """The best value of each score of a validation, with its step. Without ppl, which is nll once more."""
    found = {}
    for name, higher in HIGHER_IS_BETTER.items():
        if name != "ppl" and (curve := curves.get(f"validation/{name}")):
            steps, values = curve
            found[name] = max(zip(values, steps, strict=True), key=lambda pair: pair[0] if higher else -pair[0])
    return found


def read_scores(path: Path, kind: str) -> dict[int, dict[str, float]]:
    """The scores of the lines of one kind, `validation` or `average`, by their steps. A score that was not finite is
    nan. Empty where there is no file.
    """
    found = {}
    for _, entry in whole_lines(path):
        if entry["kind"] == kind:
            found[entry["step"]] = {
                name: math.nan if value is None else value for name, value in entry.items() if name not in OTHER
            }
    return found


def cut_back(path: Path, state: TrainingState) -> None:
    """Drop the lines of such a file that are later than the state, an unfinished last line, and every line that
    is not one of ours.
    """
    validated = state.last_validation_step
    newest = dict.fromkeys(("train", "spike", "average"), state.step) | {"validation": validated, "look": validated}
    if exists(path):
        kept = [line for line, entry in whole_lines(path) if entry["step"] <= newest.get(entry["kind"], -1)]
        replace_file(path, "".join(f"{line}\n" for line in kept))
