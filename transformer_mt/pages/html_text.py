"""Markup out of Python, in which every text is escaped unless it is markup already."""

import html
from collections.abc import Sequence
from pathlib import Path

STYLE = Path(__file__).with_name("style.css")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


class Html(str):
    """Text that is markup already."""


def tag(name: str, *content: str | None, **attributes: str | float | None) -> Html:
    """An element. What is no `Html` is escaped; None is left out. Underscores of attributes are hyphens, but one at the
    end is nothing (`class_`).
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{html.escape(_number(value))}"' for key, value in given.items())
    inside = joined(*content)
    return Html(f"<{name}{written}/>" if name in EMPTY and not inside else f"<{name}{written}>{inside}</{name}>")


EMPTY = frozenset(("line", "circle", "rect", "polyline", "path"))  # elements of pictures that have no content


def joined(*parts: str | None) -> Html:
    """Parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts if part is not None))


def table(heads: Sequence[Html], rows: Sequence[Html]) -> Html:
    """A head of these cells, and these rows (`tr`), in a box that scrolls sideways where the table is too wide."""
    return tag("div", tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)), class_="scroll")


def page(title: str, body: Html, style: str = "") -> str:
    """A whole page, which needs nothing from outside and runs no script. `style` comes behind that of all pages."""
    return PAGE.format(title=html.escape(title), style=STYLE.read_text(encoding="utf-8") + style, body=body)


def _number(value: str | float) -> str:
    """Two digits are enough for a place in a picture."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
