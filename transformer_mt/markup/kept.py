"""What a translation keeps as it stands in the source: addresses, numbers, placeholders."""

from collections.abc import Callable, Iterable

import regex

from transformer_mt.errors import UserError

Span = tuple[int, int]  # the first character, and the one after the last
_LETTER = r"[\p{L}\p{M}\p{N}]"
# Where two begin at the same place the first of this table is taken. The end of an address is no mark of the sentence.
KINDS = {
    "placeholders": r"\$?\{\{[^{}]+\}\}|\$?\{[^{}]*\}|%\(\w+\)[a-z]",
    "urls": rf"(?<!{_LETTER})(?:(?i:https?|ftp)://|www\.)[^\s<>\"]*[^\s<>\".,;:!?'’”»)\]}}…。，、！？]",
    "emails": r"(?<![\p{L}\p{M}\p{N}._%+-])[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+",
    "numbers": rf"(?<!{_LETTER})(?:(?<![^\s(])[-+−])?\p{{Nd}}+(?:[.,:/'’-]\p{{Nd}}+)*(?!{_LETTER})",
}


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds that are named, parted by commas. Raises UserError for a name that is none."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in KINDS:
            raise UserError(f"--keep names {name!r}, which is no kind of text to keep. Take of {', '.join(KINDS)}.")
    return names


def finder(kinds: Iterable[str]) -> Callable[[str], list[Span]]:
    """A function that finds what is to be kept in a text, in order. Nothing that it finds lies in another."""
    wanted = set(kinds)
    pattern = regex.compile("|".join(pattern for kind, pattern in KINDS.items() if kind in wanted))
    return lambda text: [match.span() for match in pattern.finditer(text)]
