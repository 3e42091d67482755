"""Fonts for words of any script: which ones draw them, and which one to install where none does."""

import logging
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

LOGGER = logging.getLogger(__name__)
OWN_FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic and more
CJK_PUNCTUATION = range(0x3000, 0x3040)
CJK_NAMES = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")
# The unicode name of a letter, a mark or a digit begins with its script: ARABIC LETTER ALEF, OLD PERSIAN SIGN A, THAI
# CHARACTER KO KAI. That of a symbol need not: NO ENTRY SIGN, REGIONAL INDICATOR SYMBOL LETTER D.
SCRIPT = re.compile(
    r"(.+?) (?:SMALL |CAPITAL |SUBJOINED |INDEPENDENT |DEPENDENT )*"
    r"(?:LETTER|SYLLABLE|CHARACTER|VOWEL|CONSONANT|SIGN|DIGIT|NUMBER|MARK|FATHA|KASRA|DAMMA|SHADDA|SUKUN)\b"
)


def fonts_for(words: Iterable[str]) -> list[str]:
    """Font families that together draw these words. Where the machine has none for some, a warning names one, once."""
    characters = sorted({character for word in words for character in word if is_drawn(character)})
    families = [family for character in characters if (family := _family_of(character))]
    missing = [character for character in characters if _family_of(character) is None]
    for advice in sorted({noto_advice(character) for character in missing}):
        _warn_once(advice)
    return list(dict.fromkeys([OWN_FONT, *families]))


def noto_advice(character: str) -> str:
    """What to install so that this character and its script can be drawn."""
    name = unicodedata.name(character, "")
    if name.startswith(CJK_NAMES) or ord(character) in CJK_PUNCTUATION:
        return "Chinese, Japanese and Korean: Noto Sans CJK (Debian: fonts-noto-cjk)"
    if unicodedata.category(character).startswith(("L", "M", "N")) and (found := SCRIPT.match(name)):
        script = found[1].title()
        return f"{script}: Noto Sans {script} (Debian: fonts-noto-core)"
    return f"U+{ord(character):04X} {name or 'unnamed'}: Noto's fonts (Debian: fonts-noto-core or fonts-symbola)"


def is_drawn(character: str) -> bool:
    """Control and format characters, and what unicode has not assigned, are in no font and need none."""
    return not unicodedata.category(character).startswith(("C", "Z"))


@cache
def _family_of(character: str) -> str | None:
    """A family that has the character, the own one or Noto if possible; None where no font on this machine does."""
    from matplotlib import font_manager

    for path in _font_files():
        if ord(character) in _characters_of(path):
            # Its own list may be older than a font that was installed since.
            if not any(Path(font.fname) == path for font in font_manager.fontManager.ttflist):
                font_manager.fontManager.addfont(path)
            return font_manager.get_font(path).family_name
    return None


@cache
def _font_files() -> tuple[Path, ...]:
    """The own font, then Noto's sans, then its others, then what else there is."""
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
def _warn_once(advice: str) -> None:
    LOGGER.warning("Some words of the attention pictures are boxes, for want of a font. Install one for %s.", advice)
