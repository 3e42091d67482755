"""The scripts of many texts at once, by ranges of Unicode."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# First code point of each range, and the script of its letters. Signs that many scripts share are none.
_RANGES = (
    (0x0000, ""), (0x0041, "Latin"), (0x005B, ""), (0x0061, "Latin"), (0x007B, ""), (0x00C0, "Latin"),
    (0x00D7, ""), (0x00D8, "Latin"), (0x00F7, ""), (0x00F8, "Latin"), (0x02B0, ""), (0x0370, "Greek"),
    (0x0400, "Cyrillic"), (0x0530, "Armenian"), (0x0590, "Hebrew"), (0x0600, "Arabic"), (0x0660, ""),
    (0x066E, "Arabic"), (0x06F0, ""), (0x06FA, "Arabic"), (0x0700, "Syriac"), (0x0750, "Arabic"),
    (0x0780, "Thaana"), (0x07C0, "Nko"), (0x0800, ""), (0x08A0, "Arabic"), (0x0900, "Devanagari"), (0x0964, ""),
    (0x0971, "Devanagari"), (0x0980, "Bengali"), (0x0A00, "Gurmukhi"), (0x0A80, "Gujarati"), (0x0B00, "Oriya"),
    (0x0B80, "Tamil"), (0x0C00, "Telugu"), (0x0C80, "Kannada"), (0x0D00, "Malayalam"), (0x0D80, "Sinhala"),
    (0x0E00, "Thai"), (0x0E80, "Lao"), (0x0F00, "Tibetan"), (0x1000, "Myanmar"), (0x10A0, "Georgian"),
    (0x1100, "Hangul"), (0x1200, "Ethiopic"), (0x13A0, "Cherokee"), (0x1400, ""), (0x1780, "Khmer"),
    (0x1800, "Mongolian"), (0x18B0, ""), (0x1C80, "Cyrillic"), (0x1C90, "Georgian"), (0x1CC0, ""),
    (0x1E00, "Latin"), (0x1F00, "Greek"), (0x2000, ""), (0x2C60, "Latin"), (0x2C80, ""), (0x2D00, "Georgian"),
    (0x2D30, ""), (0x2DE0, "Cyrillic"), (0x2E00, ""), (0x2E80, "Han"), (0x2FE0, ""), (0x3005, "Han"), (0x3008, ""),
    (0x3041, "Hiragana"), (0x3099, ""), (0x309D, "Hiragana"), (0x30A0, "Katakana"), (0x30FB, ""),
    (0x30FD, "Katakana"), (0x3100, ""), (0x3105, "Bopomofo"), (0x3131, "Hangul"), (0x3190, ""),
    (0x31F0, "Katakana"), (0x3200, ""), (0x3400, "Han"), (0x4DC0, ""), (0x4E00, "Han"), (0xA000, ""),
    (0xA640, "Cyrillic"), (0xA6A0, ""), (0xA720, "Latin"), (0xA800, ""), (0xA8E0, "Devanagari"), (0xA900, ""),
    (0xAC00, "Hangul"), (0xD7B0, ""), (0xF900, "Han"), (0xFB00, "Latin"), (0xFB07, ""), (0xFB1D, "Hebrew"),
    (0xFB50, "Arabic"), (0xFE00, ""), (0xFE70, "Arabic"), (0xFF00, ""), (0xFF21, "Latin"), (0xFF3B, ""),
    (0xFF41, "Latin"), (0xFF5B, ""), (0xFF66, "Katakana"), (0xFFA0, "Hangul"), (0xFFE0, ""), (0x20000, "Han"),
    (0x32000, ""),
)  # fmt: skip
SCRIPTS = tuple(sorted({name for _, name in _RANGES}))  # the first is "", no script at all
_STARTS = np.array([start for start, _ in _RANGES])
_SCRIPT_OF_RANGE = np.array([SCRIPTS.index(name) for _, name in _RANGES])
_SMALL = _SCRIPT_OF_RANGE[np.searchsorted(_STARTS, np.arange(0x3000), "right") - 1].astype(np.uint8)


# Letters that a character is worth. "我用Twitter" is Chinese.
_WEIGHTS = np.array([{"": 0, "Han": 4, "Hiragana": 2, "Katakana": 2, "Hangul": 2}.get(name, 1) for name in SCRIPTS])


def script_counts(texts: Sequence[str]) -> NDArray[np.int64]:
    """How many letters of each of `SCRIPTS` are in each text, (num_texts, num_scripts); of no script 0.

    A character that stands for a syllable or a word counts as several letters.
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    text_of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    scripts = _SMALL[np.minimum(points, len(_SMALL) - 1)].astype(np.int64)
    large = points >= len(_SMALL)
    scripts[large] = _SCRIPT_OF_RANGE[np.searchsorted(_STARTS, points[large], "right") - 1]
    size = len(SCRIPTS)
    counts = np.bincount(text_of * size + scripts, minlength=len(texts) * size).reshape(len(texts), size)
    return counts * _WEIGHTS
