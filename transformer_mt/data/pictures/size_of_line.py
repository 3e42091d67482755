"""How large the letters of a picture are, and on which row they stand, by the heights that the font's letters have."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.pictures.fonts import Font

if TYPE_CHECKING:
    from PIL import ImageFont

EM = 512  # pixels, at which the font is measured
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZÁÉÑÖáéñö0123456789.,;!?¿"
# Every letter once and common ones more often: where the ink of a line of text is.
TEXT = "the quick brown fox jumps over a lazy dog and sees his house in the night. A man has two cats"
SAME = 0.004  # em: heights as near as this are one
INK = 160  # darker pixels are ink: the edge of a letter is grey


def size_of_line(grey: NDArray[np.uint8], font: Font) -> tuple[float, float]:
    """The row on which the letters of a picture stand, and their size in pixels an em. `grey` is (rows, columns) of one
    line, dark on light, with any margins.

    The highest ink is the top of some letter, and the lowest the bottom of one. Each pair of a top and a bottom that
    the font has is tried; the one counts whose ink then grows and shrinks most nearly on the rows on which it does in a
    line of text: at the tops of letters without tails, and where they stand.
    """
    drawing = font.at_size(EM)
    boxes = [drawing.getbbox(letter, anchor="ls") for letter in LETTERS]
    tops, bottoms = (_distinct(sizes) for sizes in ([-box[1] / EM for box in boxes], [box[3] / EM for box in boxes]))
    # With a row of paper above and below: a picture may have no margins, and may be one row.
    expected, ink = _ink_of_rows(drawing), np.pad(255.0 * grey.shape[1] - grey.sum(axis=1, dtype=np.float64), 1)
    rows = np.flatnonzero((grey < INK).any(axis=1))
    first, last = int(rows[0]), int(rows[-1]) + 1
    found: list[tuple[float, float, float]] = []
    for top in tops:
        for bottom in bottoms:
            size = (last - first) / (top + bottom)
            baseline = last - bottom * size
            heights = (baseline - np.arange(-1, len(grey) + 1) - 0.5) / size
            of_text = np.interp(EM * (2 - heights) - 0.5, np.arange(len(expected)), expected, 0, 0)
            edges = np.diff(of_text)
            found.append((float(np.diff(ink) @ edges / np.linalg.norm(edges)), baseline, size))
    _, baseline, size = max(found)
    return baseline, size


def _distinct(sizes: list[float]) -> list[float]:
    """The heights of which none is as near to the next as SAME; of letters, so none is almost nothing high."""
    kept: list[float] = []
    for size in sorted(sizes):
        if not kept or size - kept[-1] > SAME:
            kept.append(size)
    return kept


def _ink_of_rows(drawing: "ImageFont.FreeTypeFont") -> NDArray[np.float64]:
    """Of a text, row by row, of which it stands on row 2 EM of three."""
    from PIL import Image, ImageDraw

    image = Image.new("L", (round(drawing.getlength(TEXT)), 3 * EM), 0)
    ImageDraw.Draw(image).text((0, 2 * EM), TEXT, fill=255, font=drawing, anchor="ls")
    return np.asarray(image).sum(axis=1, dtype=np.float64)
