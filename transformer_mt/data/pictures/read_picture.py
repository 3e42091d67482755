"""A picture of one line of text from a file, as `Pictures` would have drawn it: dark on light, and so large."""

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.pictures.size_of_line import size_of_line
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 50_000_000
LONGEST = 10_000  # a line, in widths of its letters
CONTRAST = 32  # of 256: between ink and paper, at least
CLEAR = 192  # so much contrast needs no help


def read_picture(path: Path, pictures: Pictures) -> NDArray[np.uint8]:
    """The patches of the picture in a file, (num_patches, pixels). UserError for a file that is none, for one of no
    text, and for one that is too large.
    """
    grey = _on_light(_grey(path), path)
    baseline, size = size_of_line(grey, pictures.font)
    if grey.shape[1] > LONGEST * size:
        raise UserError(
            f"{path} has no line of text: it is more than {LONGEST:,} letters long. Cut the line out of it."
        )
    return pictures.cut(pictures.lay(pictures.words_in(grey, baseline, size)))


def _grey(path: Path) -> NDArray[np.uint8]:
    """(height, width): 0 is black. What is transparent is white."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.width * image.height > MOST_PIXELS:
                raise UserError(
                    f"{path} has {image.width:,} x {image.height:,} pixels, and {MOST_PIXELS:,} are read at most. Cut "
                    "the line of text out of it."
                )
            upright = _of_8_bits(ImageOps.exif_transpose(image)).convert("RGBA")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UserError(f"{path} is a picture of too many pixels. Cut the line of text out of it.") from None
    except UnidentifiedImageError:
        raise UserError(
            f"{path} is no picture that can be read. Give a PNG or JPEG file of one line of text."
        ) from None
    except (OSError, SyntaxError, ValueError, RuntimeError, struct.error) as error:  # as each format has it
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read as a picture: {str(reason).rstrip('.')}. Give another.") from None
    paper = Image.new("RGBA", upright.size, "white")
    return np.asarray(Image.alpha_composite(paper, upright).convert("L"))


def _of_8_bits(image: "Image.Image") -> "Image.Image":
    """The picture, its grey levels as those of 8 bits where it has more bits or fractions, which Pillow would cut off
    at 255. The lightest level says how many there are: fractions, 8 bits or 16.
    """
    from PIL import Image

    if not image.mode.startswith(("I", "F")):
        return image
    levels = np.nan_to_num(np.asarray(image, np.float64), posinf=0, neginf=0)
    lightest = float(levels.max())
    white = 1 if image.mode == "F" and lightest <= 1 else 255 if lightest <= 255 else max(65_535, lightest)
    return Image.fromarray(np.clip(np.round(levels * (255 / white)), 0, 255).astype(np.uint8))


def _on_light(grey: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    """Dark on light, and where the contrast is weak, black on white. The paper is what most of the edge is."""
    edge = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    paper, darkest, lightest = float(np.median(edge)), float(grey.min()), float(grey.max())
    if lightest - darkest < CONTRAST:
        raise UserError(f"{path} has no text: all of it is of one brightness. Give a picture of one line of text.")
    if paper - darkest < lightest - paper:
        grey, paper, darkest = 255 - grey, 255 - paper, 255 - lightest
    if paper - darkest >= CLEAR and paper == 255:
        return grey
    stretched = (grey - darkest) * (255 / (paper - darkest))
    return np.clip(np.round(stretched), 0, 255).astype(np.uint8)
