"""Fonts for drawing the source: a file, or a family that is installed; the same one in training and afterwards."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.errors import UserError
from transformer_mt.paths import is_file

if TYPE_CHECKING:
    from PIL import ImageFont

DEFAULT_FONT = "DejaVu Sans"  # comes with matplotlib, under a free licence: Latin, Greek, Cyrillic and more
NAME_ANOTHER = "Name a TrueType or OpenType file, or the family of an installed font (fc-list shows which there are)."


@dataclass(frozen=True)
class Font:
    """A font's file. `asked` is the config's name for it, None for the default."""

    path: Path
    asked: str | None

    @classmethod
    def find(cls, asked: str | None, way_out: str = NAME_ANOTHER) -> "Font":
        """The font of this file or family. UserError, with `way_out`, where there is none, or the file is no font."""
        font = cls(_file_of(asked or DEFAULT_FONT, way_out), asked)
        try:
            font.at_size(10)
            len(font.characters)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"data.font: {font.path} is no font that can be drawn with ({str(error).splitlines()[0]}). {way_out}"
            ) from None
        return font

    @cached_property
    def name(self) -> str:
        """Family and style, as the file has them."""
        return " ".join(filter(None, self.at_size(10).getname()))

    @cached_property
    def sha256(self) -> str:
        """Of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @cached_property
    def characters(self) -> frozenset[int]:
        """The code points that it draws."""
        from matplotlib.ft2font import FT2Font

        return frozenset(FT2Font(str(self.path)).get_charmap())

    def at_size(self, size: int) -> "ImageFont.FreeTypeFont":
        """For drawing. Letters stand one after the other as the file has them, with no library that shapes words: not
        every machine has one.
        """
        from PIL import ImageFont

        return ImageFont.truetype(str(self.path), size, layout_engine=ImageFont.Layout.BASIC)

    def fitting(self, height: int) -> "ImageFont.FreeTypeFont":
        """The largest size of which a line, from its highest to its lowest letters, is no higher than this."""
        fitting = (self.at_size(size) for size in range(2 * height, 1, -1))
        return next((font for font in fitting if sum(font.getmetrics()) <= height), self.at_size(1))


def _file_of(asked: str, way_out: str) -> Path:
    """The file that a config names, or that of the installed family of this name."""
    try:
        path = Path(asked).expanduser()
        found = is_file(path)
    except (OSError, RuntimeError) as error:  # ~somebody who does not exist, a name that is too long
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"data.font: {asked} cannot be looked for ({reason}). {way_out}") from None
    if found:
        return path
    if path.suffix.lower() in (".ttf", ".otf", ".ttc"):
        start = "" if path.is_absolute() else " Relative names start at the working folder."
        raise UserError(f"data.font: there is no file {path.absolute()}.{start} {way_out}")
    from matplotlib import font_manager

    wanted = asked.casefold().replace(" ", "")
    regular = sorted(
        (font.style != "normal", abs(int(font.weight) - 400) if str(font.weight).isdigit() else 0, font.fname)
        for font in font_manager.fontManager.ttflist
        if font.name.casefold().replace(" ", "") == wanted
    )
    if regular:
        return Path(regular[0][-1])
    stems = {Path(name).stem.casefold().replace("-regular", ""): name for name in font_manager.findSystemFonts()}
    if wanted in stems:
        return Path(stems[wanted])
    raise UserError(f"data.font: no font {asked} is installed on this machine. {way_out}")
