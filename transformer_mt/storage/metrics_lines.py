"""The lines of metrics.jsonl and recorder.jsonl that are whole."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.paths import exists


def whole_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines that are ours, each with its entry, whose kind is a text and whose step is an int; none where there is
    no file. A kill may have torn a line, and an editor written another.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if exists(path) else ""
    for line in text.split("\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("kind"), str) and isinstance(entry.get("step"), int):
            yield line, entry
