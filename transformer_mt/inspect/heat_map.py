"""Attention as a picture: keys across, queries down, words on the axes."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES_A_WORD = 0.32


def heat_map(weights: Tensor, key_words: Sequence[str], query_words: Sequence[str], title: str = "") -> "Figure":
    """weights (num_queries, num_keys), each row a distribution -> a matplotlib figure."""
    # Not pyplot: it keeps every figure in a global list, and a training draws hundreds.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = 2.2 + INCHES_A_WORD * len(key_words)
    height = 1.8 + INCHES_A_WORD * len(query_words)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(weights.float().cpu().numpy(), vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto")
    # A dollar sign would switch to mathematical typesetting.
    key_labels, query_labels = ([word.replace("$", r"\$") for word in words] for words in (key_words, query_words))
    axes.set_xticks(range(len(key_words)), key_labels, rotation=60, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(query_words)), query_labels)
    axes.tick_params(length=0)
    if title:
        axes.set_title(title)
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention")
    return figure


def to_pixels(figure: "Figure", dpi: int = 120) -> NDArray[np.uint8]:
    """(height, width, 3), as TensorBoard wants an image."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(to_png(figure, dpi))).convert("RGB"))


def to_png(figure: "Figure", dpi: int = 120) -> bytes:
    """The bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
