"""Attention as a picture: keys across, queries down, words on the axes."""

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES_A_WORD = 0.32
MAX_INCHES = 40.0  # a picture of a hundred words; more are drawn smaller
LOGGER = logging.getLogger(__name__)
# Noto has a family for every script; those that the machine has stand behind matplotlib's own font.
_NOTO = "Noto Sans"
_OWN_FONT = "DejaVu Sans"
_GLYPHS = str.maketrans({"￭": "▪", "$": r"\$"})  # the joiner's own sign is in few fonts; $ would begin a formula


def heat_map(weights: Tensor, key_words: Sequence[str], query_words: Sequence[str], title: str = "") -> "Figure":
    """weights (num_queries, num_keys), each row a distribution -> a matplotlib figure."""
    # Not pyplot: it keeps every figure in a global list, and a training draws hundreds.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = min(2.2 + INCHES_A_WORD * len(key_words), MAX_INCHES)
    height = min(1.8 + INCHES_A_WORD * len(query_words), MAX_INCHES)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(weights.float().cpu().numpy(), vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto")
    key_labels, query_labels = ([word.translate(_GLYPHS) for word in words] for words in (key_words, query_words))
    fonts = list(_font_families())
    axes.set_xticks(range(len(key_words)), key_labels, rotation=60, ha="left", rotation_mode="anchor", family=fonts)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(query_words)), query_labels, family=fonts)
    axes.tick_params(length=0)
    if title:
        axes.set_title(title, family=fonts)
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention")
    return figure


def to_pixels(figure: "Figure", dpi: int = 120) -> NDArray[np.uint8]:
    """(height, width, 3), as TensorBoard wants an image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    with _missing_glyphs_named():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def to_png(figure: "Figure", dpi: int = 120) -> bytes:
    """The bytes of a PNG file. Characters that no font here draws become boxes, and a warning says so once."""
    buffer = io.BytesIO()
    with _missing_glyphs_named():
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


@contextmanager
def _missing_glyphs_named() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if any("missing from font" in str(warning.message) for warning in caught):
        _warn_of_missing_font()


@cache
def _font_families() -> tuple[str, ...]:
    from matplotlib import font_manager

    return (_OWN_FONT, *sorted({f.name for f in font_manager.fontManager.ttflist if f.name.startswith(_NOTO)}))


@cache
def _warn_of_missing_font() -> None:
    LOGGER.warning("Some words of the attention pictures are boxes: no font here draws them. Install Noto's fonts.")
