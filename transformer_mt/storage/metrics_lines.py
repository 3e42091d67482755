"""The lines of metrics.jsonl and recorder.jsonl that are whole."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.paths import exists

MOST_STEPS = 2**53  # beyond, a chart cannot tell one step from the next


def entry_of(line: str | bytes) -> dict[str, Any] | None:
    """The entry of a line that is ours, its kind a text and its step an int; None for any other line."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        return None
    return entry if type(step := entry.get("step")) is int and 0 <= step <= MOST_STEPS else None


def whole_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines that are ours, each with its entry; none where there is no file. A kill may have torn a line, and an
    editor written another.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if exists(path) else ""
    for line in text.split("\n"):
        if (entry := entry_of(line)) is not None:
            yield line, entry
