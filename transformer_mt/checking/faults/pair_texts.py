"""Faults that a pair shows by itself, without the rest of the corpus."""

import unicodedata

import regex

from transformer_mt.checking.faults.rules import BITS
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.word_splitting import UNSPACED

MOST_READ = 20_000  # characters of a side in which faults are looked for
COPY_WORDS, COPY_LETTERS = 2, 10
_NO_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_INVISIBLE = regex.compile(r"[\s\p{Z}\p{Cf}\p{Cc}]*")
_HAS_WORD = regex.compile(r"[\p{L}\p{N}]")
_LETTER = regex.compile(r"\p{L}")
_WORD = regex.compile(rf"[{UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+", regex.VERSION1)
_UNSPACED = regex.compile(rf"[{UNSPACED}]")
_NUMBER = regex.compile(r"\d+(?:[.,'’]\d+)*")
_NO_DIGITS = regex.compile(r"\D+")
_MARKUP = regex.compile(
    r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>|<!--|&(?:amp|lt|gt|quot|apos|nbsp|#\d+|#x[0-9a-fA-F]+);|\[\[|\]\]|\{\{|\}\}"
)
# What Latin-1 and Windows-1252 make of the bytes of UTF-8: a first byte, then one to three that follow.
_FOLLOWS = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_MISREAD = regex.compile(rf"[Â-ß][{_FOLLOWS}]|[à-ï][{_FOLLOWS}]{{2}}|[ð-ô][{_FOLLOWS}]{{3}}")
# Of the control characters those from 0x80 on are quotes and dashes of Windows-1252 that was read as Latin-1.
_DAMAGED = regex.compile(r"\ufffd|\p{L}\?\p{Ll}|[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_STRETCH = regex.compile(r"\S+")
_OF_ADDRESSES = ("://", "www.", "=")
_WORD_LOOP = regex.compile(r"\b((?:\w+\W+){1,4}?)(?:\1){2,}", regex.IGNORECASE)
_LETTER_LOOP = regex.compile(r"(?=[^\d\s])(\S{1,8}?)\1{5,}")
_TWO_SCRIPTS = regex.compile(
    r"\p{Latin}{2}[\p{Cyrillic}\p{Greek}]|[\p{Cyrillic}\p{Greek}]\p{Latin}{2}|"
    r"[\p{Cyrillic}\p{Greek}]{2}\p{Latin}|\p{Latin}[\p{Cyrillic}\p{Greek}]{2}"
)


def letters_of(text: str) -> str:
    """The letters, marks and digits of a text in lower case; the text itself where it has none."""
    return _NO_LETTERS.sub("", text.casefold()) or text.strip()


def words_of(text: str) -> list[str]:
    """Words in lower case; in scripts without spaces every character is one."""
    return _WORD.findall(text[:MOST_READ].lower())


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen."""
    return _INVISIBLE.fullmatch(text) is not None


def is_too_long(text: str, max_words: int) -> bool:
    """Whether a text has surely more tokens than so many."""
    if len(text) <= max_words:
        return False
    if is_beyond(text):
        return True
    spaced = len(_UNSPACED.sub(" ", text).split())
    return spaced + len(_UNSPACED.findall(text)) / 2 > max_words


def numbers_of(text: str) -> set[int]:
    """The numbers in digits of any script, without the marks between their digits."""
    return {int(_NO_DIGITS.sub("", found)[:4000]) for found in _NUMBER.findall(text)}


def other_numbers(src: str, tgt: str) -> tuple[list[int], list[int]] | None:
    """The numbers that only one side has; None unless both have such. `pm` and zeros behind a mark are allowed for."""
    if not (any(map(str.isdigit, src)) and any(map(str.isdigit, tgt))):
        return None
    a, b = numbers_of(src), numbers_of(tgt)
    only_src, only_tgt = _unlike(a, b), _unlike(b, a)
    return (only_src, only_tgt) if only_src and only_tgt else None


def _unlike(numbers: set[int], others: set[int]) -> list[int]:
    """The numbers that are like none of the others, in order. They are looked up, since each beside each would take
    seconds in a table that became a line.
    """
    digits = {str(other) for other in others}
    lengths = {len(one) for one in digits}
    bare = {one.rstrip("0") for one in digits} - {""}
    own_lengths = {len(str(number)) for number in numbers}
    ends = {one[-length:] for one in digits for length in own_lengths if 1 < length < len(one)}

    def is_like(number: int) -> bool:
        """Whether the other side may have this number in another form."""
        own = str(number)
        # pm, and the times of clocks; 1990s and 90er; 12.50 and 12.5, 1.5 million and 1500000
        return (
            number in others
            or any(other in others and max(number, other) <= 24 for other in (number - 12, number + 12))
            or not others.isdisjoint((number - 1200, number + 1200))
            or own in ends
            or any(own[-length:] in digits for length in lengths if 1 < length < len(own))
            or own.rstrip("0") in bare
        )

    return sorted(number for number in numbers if not is_like(number))


def is_copy(src_letters: str, tgt_letters: str, src: str) -> bool:
    """Whether both sides have these letters, enough of them."""
    if src_letters != tgt_letters or not _LETTER.search(src_letters):
        return False
    return len(src_letters) >= COPY_LETTERS or len(words_of(src)) >= COPY_WORDS


def misread(text: str) -> str | None:
    """The first piece of a text that shows a wrong encoding, if there is one."""
    if text.isascii() and "?" not in text and text.isprintable():
        return None
    for found in _MISREAD.finditer(text):
        for encoding in ("cp1252", "latin-1"):
            try:
                found[0].encode(encoding).decode("utf-8")
            except UnicodeError:
                continue
            return found[0]
    if found := _DAMAGED.search(text):
        if "?" in found[0]:  # of an address it is a part
            found = _DAMAGED.search(_STRETCH.sub(_without_address, text))
        return found[0] if found else None
    return None


def _without_address(stretch: regex.Match[str]) -> str:
    return " " if any(sign in stretch[0] for sign in _OF_ADDRESSES) else stretch[0]


def markup_in(text: str) -> str | None:
    """The first tag, entity or bracket of a wiki."""
    found = _MARKUP.search(text)
    return found[0] if found else None


def loop_in(text: str) -> str | None:
    """A stretch of words or letters that stands several times in a row."""
    found = _WORD_LOOP.search(text + " ") or _LETTER_LOOP.search(text)
    if found is None or not _LETTER.search(found[0]):
        return None
    return found[0].strip()


def two_scripts_in(text: str) -> str | None:
    """A place where a word goes from Latin letters to others that look alike, or back."""
    found = None if text.isascii() else _TWO_SCRIPTS.search(text)
    return found[0] if found else None


def faults_of_pair(src: str, tgt: str, letters: tuple[str, str], max_words: int) -> int:
    """The bits of all faults that the pair shows by itself."""
    if is_too_long(src, max_words) or is_too_long(tgt, max_words):
        flags = BITS["too_long"]
        if is_beyond(src) or is_beyond(tgt):
            return flags
    else:
        flags = 0
    if is_blank(src) or is_blank(tgt):
        return flags | BITS["blank"]
    src, tgt = src[:MOST_READ], tgt[:MOST_READ]
    if bool(_HAS_WORD.search(src)) != bool(_HAS_WORD.search(tgt)):
        flags |= BITS["no_words"]
    if is_copy(*letters, src):
        flags |= BITS["copy"]
    if other_numbers(src, tgt):
        flags |= BITS["numbers"]
    if markup_in(src) or markup_in(tgt):
        flags |= BITS["markup"]
    if misread(src) or misread(tgt):
        flags |= BITS["encoding"]
    if two_scripts_in(src) or two_scripts_in(tgt):
        flags |= BITS["script"]
    if (loop_in(src) is None) != (loop_in(tgt) is None):
        flags |= BITS["repetition"]
    if not all(text.isascii() or unicodedata.is_normalized("NFC", text) for text in (src, tgt)):
        flags |= BITS["mixed_forms"]
    return flags
