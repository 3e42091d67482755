"""What the scripts that compare models share: a config, `tmt` as a process, a run's metrics, a clock, a table."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

BENCH_CONFIG = str(Path(__file__).resolve().with_name("bench_multi30k.yaml"))


def tmt(*arguments: str) -> None:
    """`tmt`, its messages on standard error; a failure ends the comparison."""
    print("tmt", *arguments, file=sys.stderr, flush=True)
    status = subprocess.run([sys.executable, "-m", "transformer_mt", *arguments], stdout=sys.stderr).returncode
    if status:
        sys.exit(status)


def trained(work: Path, name: str, config: dict[str, Any], verb: str = "train") -> Path:
    """The run of a config, gone on with or left alone where it is finished."""
    path = work / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, **config}), encoding="utf-8")
    tmt(verb, "--config", str(path), "--runs", str(work), "--resume", "auto")
    return work / name


def metrics(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind, `train` or `validation`, in a run's metrics.jsonl; none where there is no such file."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [line for line in map(json.loads, lines) if line["kind"] == kind]


def least_seconds(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The shortest time of each piece of work. They take turns, after a turn to warm up: what else the machine does
    delays all of them alike.
    """
    best = [float("inf")] * len(works)
    for turn in range(rounds + 1):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            if turn:
                best[place] = min(best[place], time.perf_counter() - start)
    return best


def spread(numbers: Sequence[float], digits: int = 2) -> str:
    """Mean and deviation, where there are two numbers or more."""
    deviation = f" ± {statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.{digits}f}{deviation}"


def as_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))
