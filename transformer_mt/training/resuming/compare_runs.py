"""The comparison of two runs bit for bit: the first difference, if there is one. Times are left out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.checkpoint_files import STATE, WEIGHTS
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import read_tensors
from transformer_mt.training.resuming.checkpoints import OPTIMIZER

CLOCK_FIELDS = (
    "tokens_per_second",
    "elapsed_seconds",
    "seconds",
    "data_wait",
    "compiled_graphs",
    "peak_memory",
    "captured_graphs",
)


@dataclass(frozen=True)
class Comparison:
    """How much was compared, and the first difference in words, None where there is none."""

    num_weights: int
    num_optimizer_tensors: int
    num_metrics_lines: int
    difference: str | None


def compare_runs(straight: RunFolder, other: RunFolder, step: int) -> Comparison:
    """Weights, optimizer and state of the checkpoints of `step`, then metrics.jsonl and recorder.jsonl line by line.

    Raises UserError where a file is missing or damaged.
    """
    one, two = straight.step(step), other.step(step)
    weights, optimizer = ((read_tensors(one / file), read_tensors(two / file)) for file in (WEIGHTS, OPTIMIZER))
    lines = _lines(straight.metrics), _lines(other.metrics)
    recorded, again = (_lines(run.recorder) if exists(run.recorder) else [] for run in (straight, other))
    difference = (
        compare_tensors("weights", *weights)
        or compare_tensors("optimizer", *optimizer)
        or compare_values(STATE, _json(one / STATE), _json(two / STATE))
        or compare_metrics(*lines)
        or compare_metrics(recorded, again, "recorder.jsonl")
    )
    return Comparison(len(weights[0]), len(optimizer[0]), len(lines[0]), difference)


def compare_tensors(what: str, one: dict[str, Tensor], two: dict[str, Tensor]) -> str | None:
    """The first tensor, by name, that differs in a bit; None where none does. -0.0 differs from 0.0 here."""
    for name in sorted(one.keys() | two.keys()):
        if name not in one or name not in two:
            return f"{what}: {name} is only in the {'straight' if name in one else 'resumed'} run"
        a, b = one[name], two[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            shapes = [f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (a, b)]
            return f"{what}: {name} is {shapes[0]} in the straight run, {shapes[1]} in the resumed one"
        num_different = int((_bits(a) != _bits(b)).any(dim=-1).sum())
        if num_different:
            largest = (a.double() - b.double()).abs().max().item()
            return f"{what}: {name} differs in {num_different:,} of {a.numel():,} elements, by {largest:.3g} at most"
    return None


def compare_metrics(one: list[str], two: list[str], name: str = "metrics.jsonl") -> str | None:
    """The first line that differs in two such files, and its field; None where none does. Keys have no order."""
    for number, (a, b) in enumerate(zip(one, two, strict=False), start=1):
        difference = compare_values(f"{name}, line {number}", json.loads(a), json.loads(b))
        if difference is not None:
            return difference
    if len(one) != len(two):
        return f"{name} has {len(one)} lines in the straight run, {len(two)} in the resumed one"
    return None


def compare_values(what: str, one: Any, two: Any) -> str | None:
    """The first field, by name, that differs in two JSON values; None where none does. Times are passed over."""
    if not isinstance(one, dict) or not isinstance(two, dict):
        return None if _same(one, two) else f"{what} is {one!r} in the straight run, {two!r} in the resumed one"
    for key in sorted((one.keys() | two.keys()) - set(CLOCK_FIELDS)):
        if key not in one or key not in two:
            return f"{what}: {key} is only in the {'straight' if key in one else 'resumed'} run"
        difference = compare_values(f"{what}: {key}", one[key], two[key])
        if difference is not None:
            return difference
    return None


def _same(one: Any, two: Any) -> bool:
    """Whether two values are equal bit for bit: JSON writes each float, NaN and -0.0 too, in a text of its own."""
    return json.dumps(one) == json.dumps(two)


def _bits(tensor: Tensor) -> Tensor:
    """(elements, bytes an element)."""
    return tensor.contiguous().reshape(-1, 1).view(torch.uint8)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}. Run the comparison again.") from error


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}. Run the comparison again.") from error
