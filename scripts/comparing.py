"""What the scripts that compare trainings share: `tmt` as a process, a run's metrics, a table."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def tmt(*arguments: str) -> None:
    """`tmt`, its messages on standard error; a failure ends the comparison."""
    print("tmt", *arguments, file=sys.stderr, flush=True)
    status = subprocess.run([sys.executable, "-m", "transformer_mt", *arguments], stdout=sys.stderr).returncode
    if status:
        sys.exit(status)


def metrics(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind, `train` or `validation`, in a run's metrics.jsonl; none where there is no such file."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [line for line in map(json.loads, lines) if line["kind"] == kind]


def as_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))
