"""HTML as tags and text. The tokens of a text, joined, are the text, whatever it holds.

The parser of Python's library gives neither an end tag nor an unfinished comment as it was written, so it serves the
tests alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

# Text within these is a segment of its own, and a tag of these parts the text around it.
_BLOCKS = """
    address article aside blockquote body caption center colgroup dd details dialog dir div dl dt fieldset figcaption
    figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup html legend li main menu nav noscript ol optgroup
    option p pre search section select summary table tbody td template tfoot th thead title tr ul
"""
BLOCKS = frozenset(_BLOCKS.split())
VOID_BLOCKS = frozenset(["base", "br", "col", "frame", "hr", "link", "meta"])
VOID = VOID_BLOCKS | {"area", "embed", "img", "input", "param", "source", "track", "wbr"}
# What stands in these is not translated; in the raw ones there are no tags either.
RAW = frozenset(["script", "style", "textarea", "iframe", "noembed", "noframes", "xmp"])
UNTRANSLATED = RAW | {"code", "kbd", "math", "object", "pre", "samp", "svg", "tt", "var"}


class Kind(Enum):
    """What a token is. A void tag, a comment and a declaration are points."""

    TEXT = auto()
    START = auto()
    END = auto()
    POINT = auto()


@dataclass(frozen=True)
class Token:
    """A part of the text as it stands there. `name` is a tag's, in lower case."""

    kind: Kind
    raw: str
    name: str = ""

    @property
    def parts_text(self) -> bool:
        """Whether the text before and after it are segments of their own."""
        return self.name in BLOCKS or self.name in VOID_BLOCKS or self.name == "!doctype"

    @property
    def is_untranslated(self) -> bool:
        """Whether it is a start tag of what is not translated."""
        if self.kind is not Kind.START:
            return False
        given = {match["key"].lower(): match["value"].strip("\"'").lower() for match in _ATTRIBUTE.finditer(self.raw)}
        is_marked = given.get("translate") == "no" or "notranslate" in given.get("class", "").split()
        return self.name in UNTRANSLATED or is_marked


# A quote that is not closed makes no tag, nor does a name with other signs, such as <me@example.org> or <http://a>.
_NAME = r"[A-Za-z][A-Za-z0-9._-]*+(?::[A-Za-z0-9._-]++)?+"
_POINT = re.compile(r"<!--(?:-?>|.*?(?:-->|\Z))|<![A-Za-z\[][^<>]*+>|<\?[^<>]*+>", re.DOTALL)
_END = re.compile(rf"</(?P<name>{_NAME})(?:[\s/][^<>]*+)?+>")
_START_NAME = re.compile(rf"<(?P<name>{_NAME})(?=[\s/>])")
_UNQUOTED = re.compile(r"""(?:[^<>=]|=\s*+(?:[^\s"'<>][^\s<>]*+|(?=[<>]|\Z)))*+""")  # up to the next quoted value
_OPENING_QUOTE = re.compile(r"""=\s*+(?P<quote>["'])""")
_ATTRIBUTE = re.compile(r"""[\s/"'](?P<key>[^\s=/"'<>]+)\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^\s>]+)""")


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of a text. What is no tag, comment or declaration is text, an unclosed `<` for example."""
    reader = _Reader(text)
    end = 0
    at = text.find("<")
    while at >= 0:
        token = reader.token_at(at)
        if token is None:
            at = text.find("<", at + 1)
            continue
        if at > end:
            yield Token(Kind.TEXT, text[end:at])
        yield token
        end = at + len(token.raw)
        if token.kind is Kind.START and token.name in RAW:
            closing = re.compile(rf"</{token.name}\s*>", re.IGNORECASE).search(text, end)
            raw_end = closing.start() if closing else len(text)
            if raw_end > end:
                yield Token(Kind.TEXT, text[end:raw_end])
            end = raw_end
        at = text.find("<", end)
    if end < len(text):
        yield Token(Kind.TEXT, text[end:])


class _EndOfTag(NamedTuple):
    place: int  # behind the `>`
    has_slash: bool  # before it


class _Reader:
    """Reads single tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        # The ends of quoted values from which no `>` is reached. A text may hold many beginnings of tags in the quotes
        # of each other, and what follows the end of a value is the same for all: it is read once.
        self._leads_nowhere: set[int] = set()

    def token_at(self, at: int) -> Token | None:
        """The token that a `<` begins, if it begins one."""
        if match := _POINT.match(self.text, at):
            is_doctype = match[0][:9].lower() == "<!doctype"
            return Token(Kind.POINT, match[0], "!doctype" if is_doctype else "!")
        if match := _END.match(self.text, at):
            return Token(Kind.END, match[0], match["name"].lower())
        match = _START_NAME.match(self.text, at)
        end = self._end_of_tag(match.end()) if match else None
        if not match or end is None:
            return None
        name = match["name"].lower()
        is_void = name in VOID or (end.has_slash and name not in BLOCKS | RAW)
        return Token(Kind.POINT if is_void else Kind.START, self.text[at : end.place], name)

    def _end_of_tag(self, at: int) -> _EndOfTag | None:
        """The `>` of a start tag whose name ends here."""
        ends: list[int] = []
        while True:
            unquoted = _UNQUOTED.match(self.text, at)
            assert unquoted, "it matches nothing too"
            at = unquoted.end()
            if self.text[at : at + 1] == ">":
                return _EndOfTag(at + 1, _ends_in_slash(unquoted[0]))
            quote = _OPENING_QUOTE.match(self.text, at)
            closing = self.text.find(quote["quote"], quote.end()) if quote else -1
            at = closing + 1
            if closing < 0 or at in self._leads_nowhere:
                self._leads_nowhere.update(ends)
                return None
            ends.append(at)


def _ends_in_slash(unquoted: str) -> bool:
    """Whether the end of a tag has a slash of its own. One behind a value without quotes belongs to the value."""
    if not unquoted.endswith("/"):
        return False
    last = unquoted.split()[-1]
    return "=" not in last and not unquoted[: -len(last)].rstrip().endswith("=")
