"""Runs as a table: the settings that differ, best scores, minutes, sizes; for a terminal, as TSV and as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from transformer_mt.inspect.text_table import GAP, fit, width_of
from transformer_mt.judging.runs.summary import RunSummary
from transformer_mt.judging.settings import differing_settings

WIDEST = 28  # cells of a column


def rows_of(summaries: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """A row for each run by the names of the columns. A column that no run has anything for is left out."""
    configs = [summary.config for summary in summaries if summary.config is not None]
    different = differing_settings(configs)
    rows, number = [], 0
    for summary in summaries:
        row: dict[str, Any] = {"run": summary.name, "state": summary.state}
        row |= {name: values[number] if summary.config else None for name, values in different.items()}
        number += summary.config is not None
        for name in ("nll", "bleu", "chrf"):
            value, step = summary.best.get(name, (None, None))
            row |= {f"best {name}": value, f"at step ({name})": step}
        row |= {"test bleu": summary.test_bleu, "step": summary.step, "minutes": summary.minutes}
        row |= {"parameters": summary.num_parameters, "MB": summary.num_bytes / 1e6}
        rows.append(row)
    kept = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return [{name: row[name] for name in kept} for row in rows]


def as_json(summaries: Sequence[RunSummary]) -> str:
    """A list of rows, each with its problems."""
    rows = rows_of(summaries)
    told = [{**row, "problems": summary.problems} for row, summary in zip(rows, summaries, strict=True)]
    return json.dumps(told, indent=1, ensure_ascii=False)


def as_tsv(summaries: Sequence[RunSummary]) -> Iterator[str]:
    """A line of names, then a line for each run, numbers as they are. Tabs and line ends in a value become blanks."""
    rows = rows_of(summaries)
    yield "\t".join(rows[0])
    for row in rows:
        yield "\t".join("" if value is None else " ".join(str(value).split()) for value in row.values())


def as_table(summaries: Sequence[RunSummary], width: int) -> Iterator[str]:
    """Lines of at most `width` cells: where the columns have no room side by side, the others follow below. Problems
    stand last.
    """
    rows = [{name: row[name] for name in row if not name.startswith("at step")} for row in rows_of(summaries)]
    columns = {name: [cell(name, row[name]) for row in rows] for name in rows[0]}
    widths = {name: min(WIDEST, max(map(width_of, [name, *cells]))) for name, cells in columns.items()}
    first, *others = columns
    blocks: list[list[str]] = [[first]]
    for name in others:
        if sum(widths[one] + GAP for one in [*blocks[-1], name]) - GAP > width and len(blocks[-1]) > 1:
            blocks.append([first])
        blocks[-1].append(name)
    for number, block in enumerate(blocks):
        if number:
            yield ""
        for line in [block, *([columns[name][i] for name in block] for i in range(len(rows)))]:
            is_number = [_is_number(columns[name]) for name in block]
            cells = zip(block, line, is_number, strict=True)
            yield (" " * GAP).join(fit(text, widths[name], right=right) for name, text, right in cells).rstrip()
    for summary in summaries:
        for problem in summary.problems:
            yield f"{summary.name}: {problem}"


def cell(name: str, value: Any) -> str:
    """A value as text: scores with two digits, or four for the nll."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if "nll" in name else f"{value:.1f}" if name in ("minutes", "MB") else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(cells: Sequence[str]) -> bool:
    given = [text for text in cells if text]
    return bool(given) and all(text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit() for text in given)
