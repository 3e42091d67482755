"""Fonts for words of any script: the families that draw them, and advice where the machine has none."""

import logging
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

LOGGER = logging.getLogger(__name__)
OWN_FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic and more


def fonts_for(words: Iterable[str]) -> list[str]:
    """Font families that together draw these words. Where the machine has none for some, one warning says so."""
    characters = sorted({character for word in words for character in word if is_drawn(character)})
    families = [_family_of(character) for character in characters]
    if None in families:
        _warn_once()
    return list(dict.fromkeys([OWN_FONT, *filter(None, families)]))


@contextmanager
def no_word_of_missing_glyphs() -> Iterator[None]:
    """Silence matplotlib's warnings: `fonts_for` has warned once, with advice."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def is_drawn(character: str) -> bool:
    """Whether a font must have the character. Control, format and unassigned characters are in no font."""
    return not unicodedata.category(character).startswith(("C", "Z"))


@cache
def _family_of(character: str) -> str | None:
    """A family that has the character, the own one or Noto if possible; None where no font on this machine does."""
    from matplotlib import font_manager

    for path in _font_files():
        if ord(character) in _characters_of(path):
            # matplotlib's own list may be older than a newly installed font.
            if not any(Path(font.fname) == path for font in font_manager.fontManager.ttflist):
                font_manager.fontManager.addfont(path)
            return font_manager.get_font(path).family_name
    return None


@cache
def _font_files() -> tuple[Path, ...]:
    """matplotlib's own font, then Noto's sans fonts, then its others, then all other fonts."""
    from matplotlib import font_manager

    own = Path(font_manager.findfont(OWN_FONT))
    found = {Path(name) for name in font_manager.findSystemFonts()}
    usable = {path for path in found if "LastResort" not in path.name and "Color" not in path.name}

    def rank(path: Path) -> tuple[bool, bool, bool, str]:
        name = path.name
        return not name.startswith("NotoSans"), not name.startswith("Noto"), "Regular" not in name, str(path)

    return (own, *sorted(usable, key=rank))


@cache
def _characters_of(path: Path) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(str(path)).get_charmap())
    except (OSError, RuntimeError):  # a file that is no font, or a kind that matplotlib does not draw
        return frozenset()


@cache
def _warn_once() -> None:
    LOGGER.warning(
        "Some words of the pictures are boxes, for want of a font. Install Noto fonts (Debian: "
        "fonts-noto-cjk for Chinese, Japanese and Korean, fonts-noto-core for others, fonts-symbola for symbols)."
    )
