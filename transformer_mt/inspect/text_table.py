"""Columns of text for a terminal: width in any script, text cut or padded to it, and colour."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformer_mt.data.word_splitting import printable

ELLIPSIS = "…"
GAP = 2  # spaces between columns
LEAST = 4  # cells of a column


@dataclass(frozen=True)
class Paint:
    """Escape codes around a text, or none where `on` is false. Escape codes would be measured as text: paint last."""

    on: bool

    def heading(self, text: str) -> str:
        """The heading of a part."""
        return self._code("1;36", text)

    def strong(self, text: str) -> str:
        """The text that matters most."""
        return self._code("1;32", text)

    def dim(self, text: str) -> str:
        """Text that a reader may skip."""
        return self._code("2", text)

    def _code(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text


def width_of(text: str) -> int:
    """The number of cells of a text in a terminal: two for a wide character, none for a combining mark."""
    return sum(map(_cells, text))


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at spaces; a word that is longer than a line is cut."""
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
    """A text in exactly `width` cells: cut with an ellipsis, or padded; `right` puts it to the right."""
    text = printable(text)
    if width_of(text) > width:
        kept = ""
        while width_of(kept + text[len(kept)]) < width:
            kept += text[len(kept)]
        text = kept + ELLIPSIS
    padding = " " * (width - width_of(text))
    return padding + text if right else text + padding


def column_blocks(num_columns: int, column_width: int, width: int) -> Iterator[range]:
    """The columns in blocks that fit into `width` cells; the blocks stand one below the other."""
    fitting = max(1, width // (column_width + GAP))
    for start in range(0, num_columns, fitting):
        yield range(start, min(start + fitting, num_columns))


def column_width(texts: Sequence[str], most: int) -> int:
    """The width of the widest text, within bounds."""
    return max(LEAST, min(most, max(map(width_of, texts), default=LEAST)))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
