"""Pages as the tests read them: headings, tables, code spans, and Python that a page shows with what it prints."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def read(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", read(page), re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """Without the fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def spans(text: str) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", prose(text))


def section(page: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", read(page), re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no heading {heading!r}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table, the line under the head left out; a table ends at the first other line."""
    found: list[list[list[str]]] = []
    inside = False
    for line in prose(text).split("\n"):
        if line.startswith("|"):
            if not inside:
                found.append([])
            if not re.fullmatch(r"[|\- ]+", line):
                found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        inside = line.startswith("|")
    return found


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def snippets(text: str) -> list[tuple[str, str]]:
    """Every block of Python with what stands directly below it as what it prints, empty where nothing does."""
    pattern = r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
    return re.findall(pattern, text, re.DOTALL | re.MULTILINE)


def printed_by(code: str, names: dict[str, Any]) -> str:
    """What a block prints, run with the names that the blocks above it left."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "page", "exec"), names)
    return out.getvalue()
