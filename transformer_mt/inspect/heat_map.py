"""Attention as a picture: keys across, queries down, words on the axes; one map, or one for each head."""

import io
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.data.word_splitting import JOINER
from transformer_mt.inspect.fonts import fonts_for, is_drawn, no_word_of_missing_glyphs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 120
MAX_INCHES = 72.0  # room for sixteen maps of ninety words; a larger picture is scaled down
SMALL_CELL, LARGE_CELL = 0.2, 0.34  # inches a word takes, among forty words and among few
POINTS_A_CELL = 40  # size of the words in a cell of one inch
TITLE_POINTS = 13
SLANT = 60  # degrees of the words across
SHAPE = 1.6  # the width to height that is wanted of a picture of several maps
TARGET_COLOUR = "#b45309"
JOINER_SIGN = "·"  # because few fonts have the joiner itself
PLAIN_PAD = 3  # points between a word and its row or column
Patches = NDArray[np.uint8] | None  # (num_words, height, width), grey, where an axis is a picture


@dataclass(frozen=True)
class _Layout:
    """Sizes in inches. A row has `columns` maps, each `width` x `height` with its words and title."""

    cell: float
    points: float
    left: float
    top: float
    width: float
    height: float
    columns: int
    header: float
    figure: tuple[float, float]


def heat_map(
    weights: Tensor, key_words: Sequence[str], query_words: Sequence[str], key_patches: Patches = None
) -> "Figure":
    """weights (num_queries, num_keys), each row a distribution -> a matplotlib figure."""
    return heat_maps(weights[None], key_words, query_words, [""], key_patches=key_patches)


def heat_maps(
    weights: Tensor,
    key_words: Sequence[str],
    query_words: Sequence[str],
    map_titles: Sequence[str],
    title: str = "",
    num_src: int = 0,
    query_patches: Patches = None,
    key_patches: Patches = None,
) -> "Figure":
    """weights (num_maps, num_queries, num_keys), each row a distribution -> a matplotlib figure.

    num_src is the number of source words where both axes hold a source and then a target: a line then parts the two,
    and the words of the target are coloured. Patches stand between the words of their axis and the map.
    """
    # Not pyplot: it keeps every figure in a global list, and a training draws hundreds.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    across, down = ([_label(word) for word in words] for words in (key_words, query_words))
    fonts = fonts_for([*across, *down, title])
    layout = _layout(across, down, len(weights), title, fonts, query_patches is not None, key_patches is not None)
    figure = Figure(figsize=layout.figure)
    FigureCanvasAgg(figure)
    norm = PowerNorm(0.5, 0.0, 1.0)  # the square root makes a weight visible that is spread over forty words
    for number, (one, map_title) in enumerate(zip(weights.float().cpu().numpy(), map_titles, strict=True)):
        axes = _place(figure, layout, number, len(across), len(down))
        axes.imshow(one, norm=norm, cmap="Blues", aspect="auto")
        pads = [PLAIN_PAD + (patches is not None) * 72 * layout.cell for patches in (key_patches, query_patches)]
        _write_words(axes, across, down, layout.points, fonts, num_src, *pads)
        _draw_patches(axes, key_patches, query_patches)
        if map_title:
            axes.set_title(map_title, fontsize=1.2 * layout.points, family=fonts)
    _add_scale(figure, layout, len(down))
    if title:
        x, y = 0.15 / layout.figure[0], 1 - 0.15 / layout.figure[1]
        figure.text(x, y, title, fontsize=TITLE_POINTS, va="top", family=fonts, parse_math=False)
    return figure


def _layout(
    across: list[str], down: list[str], num_maps: int, title: str, fonts: list[str], at_left: bool, at_top: bool
) -> _Layout:
    """`at_left` and `at_top`: patches stand there, in a cell more."""
    cell = max(SMALL_CELL, LARGE_CELL - 0.0035 * max(len(across), len(down)))
    points = POINTS_A_CELL * cell
    widths = [_inches(word, points, fonts) for word in across]
    rise, run = math.sin(math.radians(SLANT)), math.cos(math.radians(SLANT))
    left = max(_inches(word, points, fonts) for word in down) + 0.2 + cell * at_left
    top = max(widths) * rise + (0.55 if num_maps > 1 else 0.2) + cell * at_top
    overhang = max(run * width - (len(across) - i - 0.5) * cell for i, width in enumerate(widths))
    width = left + len(across) * cell + max(0.15, overhang + 0.1)
    height = top + len(down) * cell + 0.15

    def distance(columns: int) -> float:
        rows = -(-num_maps // columns)
        return abs(math.log(columns * width / (rows * height) / SHAPE)) + 0.3 * (rows * columns - num_maps)

    columns = min(range(1, num_maps + 1), key=distance)
    header = 0.3 + 0.25 * (title.count("\n") + 1) if title else 0.0
    title_width = max(_inches(line, TITLE_POINTS, fonts) for line in title.split("\n"))
    wide = max(columns * width + 0.9, title_width + 0.3)
    high = -(-num_maps // columns) * height + header
    shrink = min(1.0, MAX_INCHES / max(wide, high))
    cell, points, left, top, width, height, header = (
        shrink * size for size in (cell, points, left, top, width, height, header)
    )
    return _Layout(cell, points, left, top, width, height, columns, header, (shrink * wide, shrink * high))


def _inches(text: str, points: float, fonts: list[str]) -> float:
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    renderer, font = RendererAgg(1, 1, 72), FontProperties(fonts, size=points)
    with no_word_of_missing_glyphs():
        return renderer.get_text_width_height_descent(text, font, ismath=False)[0] / 72


def _label(word: str) -> str:
    """A word as it can be drawn: U+FFFD for a control character, numbers for a word of which nothing can be seen."""
    if not any(map(is_drawn, word)):
        return " ".join(f"U+{ord(character):04X}" for character in word)
    shown = ("\ufffd" if unicodedata.category(character) in ("Cc", "Cs") else character for character in word)
    return "".join(shown).replace(JOINER, JOINER_SIGN)


def _place(figure: "Figure", layout: _Layout, number: int, num_keys: int, num_queries: int) -> "Axes":
    """The axes of map `number`, its cells square and as large as those of every other."""
    row, column = divmod(number, layout.columns)
    wide, high = layout.figure
    left = column * layout.width + layout.left
    bottom = high - layout.header - row * layout.height - layout.top - num_queries * layout.cell
    size = num_keys * layout.cell, num_queries * layout.cell
    return figure.add_axes((left / wide, bottom / high, size[0] / wide, size[1] / high))


def _write_words(
    axes: "Axes",
    across: list[str],
    down: list[str],
    points: float,
    fonts: list[str],
    num_src: int,
    pad_across: float,
    pad_down: float,
) -> None:
    look: dict[str, Any] = {"family": fonts, "fontsize": points, "parse_math": False}
    slant = {"rotation": SLANT, "rotation_mode": "anchor", "ha": "left"}
    axes.set_xticks(range(len(across)), across, **look, **slant)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(down)), down, **look)
    axes.tick_params("x", length=0, pad=pad_across)
    axes.tick_params("y", length=0, pad=pad_down)
    axes.hlines(np.arange(1, len(down)) - 0.5, -0.5, len(across) - 0.5, color="0.85", linewidth=0.4)
    axes.vlines(np.arange(1, len(across)) - 0.5, -0.5, len(down) - 0.5, color="0.85", linewidth=0.4)
    if num_src:
        for line in (axes.axvline, axes.axhline):
            line(num_src - 0.5, color=TARGET_COLOUR, linewidth=1.2)
        for label in (*axes.get_xticklabels()[num_src:], *axes.get_yticklabels()[num_src:]):
            label.set_color(TARGET_COLOUR)


def _draw_patches(axes: "Axes", across: Patches, down: Patches) -> None:
    """Each patch in a cell of its own, above its column or left of its row."""
    for patches, is_across in ((across, True), (down, False)):
        for place, patch in enumerate(() if patches is None else patches):
            where = (place, -1) if is_across else (-1, place)
            half = min(1.0, patch.shape[1] / patch.shape[0]) / 2
            extent = (where[0] - half, where[0] + half, where[1] + 0.5, where[1] - 0.5)
            axes.imshow(patch, cmap="gray", vmin=0, vmax=255, extent=extent, aspect="auto", clip_on=False)
    if across is not None or down is not None:
        num_queries, num_keys = axes.images[0].get_array().shape  # pyright: ignore[reportOptionalMemberAccess]
        axes.set_xlim(-0.5, num_keys - 0.5)
        axes.set_ylim(num_queries - 0.5, -0.5)


def _add_scale(figure: "Figure", layout: _Layout, num_queries: int) -> None:
    """Draw the scale of colours at the right of the first row of maps."""
    wide, high = layout.figure
    tall = min(num_queries * layout.cell, 3.0)
    left = layout.columns * layout.width + 0.1
    bottom = high - layout.header - layout.top - tall
    axes = figure.add_axes((left / wide, bottom / high, 0.12 / wide, tall / high))
    figure.colorbar(figure.axes[0].images[0], cax=axes, label="attention", ticks=[0, 0.05, 0.2, 0.5, 1])
    axes.tick_params(labelsize=7)


def to_pixels(figure: "Figure") -> NDArray[np.uint8]:
    """The picture as (height, width, 3), as TensorBoard wants it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    with no_word_of_missing_glyphs():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def to_png(figure: "Figure") -> bytes:
    """The bytes of a PNG file."""
    buffer = io.BytesIO()
    with no_word_of_missing_glyphs():
        figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()
