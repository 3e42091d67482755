"""Diagnoses in words and as JSON."""

import json
import math
import shlex
import textwrap
from pathlib import Path
from typing import Any

from transformer_mt.diagnosing.diagnoses import Diagnoses, Diagnosis, not_judged
from transformer_mt.diagnosing.history import Recorded
from transformer_mt.diagnosing.rules import RULES
from transformer_mt.plurals import counted
from transformer_mt.storage.run_folder import RunFolder

INDENT = "  "


def in_one_line(diagnosis: Diagnosis) -> str:
    """What the console says of it once."""
    return f"diagnosis {diagnosis.name} (step {diagnosis.first_step:,}): {diagnosis.finding.seen} {diagnosis.tries}"


def summary_line(diagnoses: Diagnoses) -> str:
    """One line at the end of a training."""
    if not diagnoses.found:
        return "diagnoses: none"
    named = ", ".join(f"{found.name} ({_steps(found)})" for found in diagnoses.found.values())
    return f"diagnoses: {named}"


def as_text(run: RunFolder, recorded: Recorded, diagnoses: Diagnoses, width: int) -> list[str]:
    """The lines of `tmt diagnose`."""
    lines = [f"{run.path}, up to step {recorded.step:,}: {summary_line(diagnoses)}"]
    for step, file in run.not_finite().items():
        lines += ["", f"not finite: the loss or a gradient of update {step:,}, where a training stopped"]
        lines.append(f"{INDENT}try: {_replaying(file, run)}")
    for found in diagnoses.found.values():
        lines += ["", f"{found.name}: {RULES[found.name].what} ({_steps(found)})"]
        lines += _wrapped(f"seen: {found.finding.seen}", width)
        lines += _wrapped(f"try: {found.tries}", width)
    reasons: dict[str, list[str]] = {}
    for name, reason in not_judged(recorded).items():
        reasons.setdefault(reason, []).append(name)
    if reasons:
        lines.append("")
    for reason, names in reasons.items():
        lines += textwrap.wrap(f"not judged: {', '.join(names)}; {reason}", width, subsequent_indent=INDENT)
    if recorded.num_broken:
        lines.append(f"{counted(recorded.num_broken, 'recorded line')} cannot be read: passed over")
    return lines


def as_json(run: RunFolder, recorded: Recorded, diagnoses: Diagnoses) -> str:
    """All of it. Numbers that are not finite are null."""
    skipped = not_judged(recorded)
    found: dict[str, Any] = {
        "run": str(run.path),
        "step": recorded.step,
        "diagnoses": [
            {
                "name": one.name,
                "what": RULES[one.name].what,
                "first_step": one.first_step,
                "last_step": one.last_step,
                "number": one.number,
                "holds": one.holds,
                "seen": one.finding.seen,
                "try": one.tries,
                "figures": one.finding.figures,
            }
            for one in diagnoses.found.values()
        ],
        "silent": [name for name in RULES if name not in diagnoses.found and name not in skipped],
        "not_judged": skipped,
        "num_broken_lines": recorded.num_broken,
        "not_finite": [
            {"step": step, "file": str(file), "try": _replaying(file, run)} for step, file in run.not_finite().items()
        ],
    }
    return json.dumps(_finite(found), ensure_ascii=False, indent=1)


def _replaying(file: Path, run: RunFolder) -> str:
    """The command that shows where an update went wrong."""
    return f"tmt debug batch {shlex.quote(str(file))} --run {run.quoted}"


def _steps(found: Diagnosis) -> str:
    if found.first_step == found.last_step:
        return f"step {found.first_step:,}"
    return f"steps {found.first_step:,} to {found.last_step:,}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 40), initial_indent=INDENT, subsequent_indent=2 * INDENT, break_on_hyphens=False
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
