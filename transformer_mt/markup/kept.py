"""What a translation keeps as it stands in the source: addresses, numbers, placeholders."""

from collections.abc import Callable, Iterable

import regex

from transformer_mt.errors import UserError

Span = tuple[int, int]  # the first character, and the one after the last
_LETTER = r"[\p{L}\p{M}\p{N}]"
_IN_URL = r"[^\s<>\"]"
_IN_NUMBER = r"[.,:/'’٫٬．-]"  # between two digits
_IN_THOUSANDS = r"(?<!\p{Nd}{4})[\u00a0\u2009\u202f]"  # no-break and thin spaces, before three digits
_BRACKETS = [(r"\(", r"\)"), (r"\[", r"\]"), (r"\{", r"\}")]


def _balanced(opening: str, closing: str, depth: int = 3) -> str:
    """What an opening and its closing bracket hold in a URL, with up to `depth` pairs in each other."""
    other = rf"[^\s<>\"{opening}{closing}]"
    pattern = f"{opening}{other}*+{closing}"
    for _ in range(depth - 1):
        pattern = f"{opening}(?:{other}|{pattern})*+{closing}"
    return pattern


_PAIR = "|".join(_balanced(*brackets) for brackets in _BRACKETS)
# Where two begin at the same place the first of this table is taken. The end of an address is no mark of the sentence,
# and no bracket but one that was opened in the address. A number is whole or none: one that a letter touches, as the
# unit of `3.5mm` does, is left to the model, and no part of it is a number. So its groups give nothing back.
KINDS = {
    "placeholders": r"\$?\{\{[^{}]+\}\}|\$?\{[^{}]*\}|%\(\w+\)[a-z]",
    "urls": rf"(?<!{_LETTER})(?:(?i:https?|ftp)://|www\.)(?>{_PAIR}|{_IN_URL})*"
    rf"(?:{_PAIR}|[^\s<>\".,;:!?'’”»)\]}}…。，、！？])",
    "emails": r"(?<![\p{L}\p{M}\p{N}._%+-])[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+",
    "numbers": rf"(?<!{_LETTER})(?<!\p{{Nd}}{_IN_NUMBER})(?<!\p{{Nd}}[Ee][-+−])(?:(?<![^\s(])[-+−])?"
    rf"\p{{Nd}}++(?:{_IN_NUMBER}\p{{Nd}}++|{_IN_THOUSANDS}\p{{Nd}}{{3}}+(?!\p{{Nd}}))*+(?!{_LETTER})",
}


def finder(kinds: Iterable[str]) -> Callable[[str], list[Span]]:
    """A function that finds what is to be kept in a text, in order. Nothing that it finds lies in another.

    UserError for a kind that there is not.
    """
    wanted = set(kinds)
    if others := wanted - KINDS.keys():
        raise UserError(f"{min(others)!r} is no kind of text that can be kept. Use {', '.join(KINDS)}.")
    pattern = regex.compile("|".join(pattern for kind, pattern in KINDS.items() if kind in wanted) or r"(?!)")
    return lambda text: [match.span() for match in pattern.finditer(text)]
