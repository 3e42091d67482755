"""Columns of text for a terminal: their width in any script, cut and padded to fit; colour where it is wanted."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformer_mt.data.words import printable

ELLIPSIS = "…"
GAP = 2  # spaces between columns


@dataclass(frozen=True)
class Paint:
    """Escape codes around a text, or none where `on` is false. Painted text is no longer measured: paint last."""

    on: bool

    def heading(self, text: str) -> str:
        """The heading of a part."""
        return self._code("1;36", text)

    def strong(self, text: str) -> str:
        """What counts most."""
        return self._code("1;32", text)

    def dim(self, text: str) -> str:
        """What may be passed over."""
        return self._code("2", text)

    def _code(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text


def width_of(text: str) -> int:
    """How many cells a terminal gives a text: two to a wide character, none to a mark."""
    return sum(map(_cells, text))


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at spaces, and within what is longer than a line."""
    line = ""
    for word in printable(text).split(" "):
        if line and width_of(line) + 1 + width_of(word) > width:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
        while width_of(line) > width:
            end = len(line) - 1
            while width_of(line[:end]) > width:
                end -= 1
            yield line[:end]
            line = line[end:]
    yield line


def fit(text: str, width: int, right: bool = False) -> str:
    """A text in exactly `width` cells: cut with an ellipsis, or padded (on the left where it stands `right`)."""
    text = printable(text)
    if width_of(text) > width:
        kept = ""
        while width_of(kept + text[len(kept)]) < width:
            kept += text[len(kept)]
        text = kept + ELLIPSIS
    padding = " " * (width - width_of(text))
    return padding + text if right else text + padding


def column_blocks(num_columns: int, column_width: int, width: int) -> Iterator[range]:
    """Which columns stand beside each other where `width` cells are left for them; the others follow below."""
    fitting = max(1, width // (column_width + GAP))
    for start in range(0, num_columns, fitting):
        yield range(start, min(start + fitting, num_columns))


def column_width(texts: Sequence[str], least: int, most: int) -> int:
    """The width of the widest, within bounds."""
    return max(least, min(most, max(map(width_of, texts), default=least)))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
