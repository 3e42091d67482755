"""HTML and XML as tags and text. The tokens of a text, joined, are the text, whatever it holds.

The parser of Python's library gives neither an end tag nor an unfinished comment as it was written, so it serves the
tests alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from html.entities import html5
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
    """What a token is. A void tag, a comment, a declaration and an entity of a document's own are points."""

    TEXT = auto()
    START = auto()
    END = auto()
    POINT = auto()


@dataclass(frozen=True)
class Token:
    """A part of the text as it stands there. `name` is a tag's, in lower case; in XML only if it is in ASCII. After a
    start tag that `holds_raw` all is text up to its end tag.
    """

    kind: Kind
    raw: str
    name: str = ""
    holds_raw: bool = False

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
_POINT = r"<!--(?:-?>|.*?(?:-->|\Z))|<![A-Za-z\[][^<>]*+>|<\?[^<>]*+>"
# "Namespaces in XML", section 3, and its declaration, which may hold others in brackets.
_LETTERS = (
    "A-Z_a-zÀ-ÖØ-öø-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_XML_PART = rf"[{_LETTERS}][{_LETTERS}0-9.·\u0300-\u036f\u203f\u2040-]*+"
_XML_NAME = rf"{_XML_PART}(?::{_XML_PART})?+"
_XML_POINT = r"<!--.*?(?:-->|\Z)|<![A-Za-z][^<>\[]*+(?:\[(?:[^\]<]|<[^<>]*+>)*+\]\s*+)?+>"
_ENTITY = re.compile(rf"&(?P<name>{_XML_PART};)")
_CLOSED_BY = {"<![CDATA[": "]]>", "<?": "?>"}  # whatever stands in them


class _Grammar:
    """What tokens look like, in XML or in HTML."""

    def __init__(self, name: str, point: str) -> None:
        self.point = re.compile(point, re.DOTALL)
        self.end = re.compile(rf"</(?P<name>{name})(?:[\s/][^<>]*+)?+>")
        self.start_name = re.compile(rf"<(?P<name>{name})(?=[\s/>])")


_HTML, _XML = _Grammar(_NAME, _POINT), _Grammar(_XML_NAME, _XML_POINT)
_UNQUOTED = re.compile(r"""(?:[^<>=]|=\s*+(?:[^\s"'<>][^\s<>]*+|(?=[<>]|\Z)))*+""")  # up to the next quoted value
_OPENING_QUOTE = re.compile(r"""=\s*+(?P<quote>["'])""")
_ATTRIBUTE = re.compile(r"""[\s/"'](?P<key>[^\s=/"'<>]+)\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^\s>]+)""")


def tokens_of(text: str, xml: bool = False) -> Iterator[Token]:
    """The tokens of a text. What is no tag, comment or declaration is text, an unclosed `<` for example. In XML a tag
    with a slash is a point, whatever its name, and no name holds raw text.
    """
    reader = _Reader(text, xml)
    end = 0
    at = text.find("<")
    while at >= 0:
        token = reader.token_at(at)
        if token is None:
            at = text.find("<", at + 1)
            continue
        if at > end:
            yield from _texts(text[end:at], xml)
        yield token
        end = at + len(token.raw)
        if token.holds_raw:
            closing = re.compile(rf"</{token.name}\s*>", re.IGNORECASE).search(text, end)
            raw_end = closing.start() if closing else len(text)
            if raw_end > end:
                yield Token(Kind.TEXT, text[end:raw_end])
            end = raw_end
        at = text.find("<", end)
    if end < len(text):
        yield from _texts(text[end:], xml)


def _texts(text: str, xml: bool) -> Iterator[Token]:
    """Text, and in XML the entities in it that a document has declared itself: who knows what they stand for."""
    end = 0
    for entity in _ENTITY.finditer(text) if xml else ():
        if entity["name"] not in html5:
            if entity.start() > end:
                yield Token(Kind.TEXT, text[end : entity.start()])
            yield Token(Kind.POINT, entity[0], "&")
            end = entity.end()
    if end < len(text):
        yield Token(Kind.TEXT, text[end:])


class _EndOfTag(NamedTuple):
    place: int  # behind the `>`
    has_slash: bool  # before it


class _Reader:
    """Reads single tokens of a text."""

    def __init__(self, text: str, xml: bool) -> None:
        self.text = text
        self.xml = xml
        self.grammar = _XML if xml else _HTML
        self._last_closing = {opening: text.rfind(closing) for opening, closing in _CLOSED_BY.items()}
        # The ends of quoted values from which no `>` is reached. A text may hold many beginnings of tags in the quotes
        # of each other, and what follows the end of a value is the same for all: it is read once.
        self._leads_nowhere: set[int] = set()

    def token_at(self, at: int) -> Token | None:
        """The token that a `<` begins, if it begins one."""
        if raw := self._section(at):
            return Token(Kind.POINT, raw, "!" if raw.startswith("<?") else "![cdata[")
        if match := self.grammar.point.match(self.text, at):
            is_doctype = match[0][:9].lower() == "<!doctype"
            return Token(Kind.POINT, match[0], "!doctype" if is_doctype else "!")
        if match := self.grammar.end.match(self.text, at):
            return Token(Kind.END, match[0], _folded(match["name"]))
        match = self.grammar.start_name.match(self.text, at)
        end = self._end_of_tag(match.end()) if match else None
        if not match or end is None:
            return None
        raw, name = self.text[at : end.place], _folded(match["name"])
        is_point = raw.endswith("/>") if self.xml else end.has_slash and name not in BLOCKS | RAW
        if is_point or name in VOID:
            return Token(Kind.POINT, raw, name)
        return Token(Kind.START, raw, name, holds_raw=not self.xml and name in RAW)

    def _section(self, at: int) -> str:
        """What ends with a mark of its own, whatever it holds. Browsers end such an instruction with any `>`."""
        for opening, closing in _CLOSED_BY.items():
            is_one = self.text.startswith(opening, at) and (self.xml or opening != "<?")
            if is_one and at + len(opening) <= self._last_closing[opening]:
                return self.text[at : self.text.index(closing, at + len(opening)) + len(closing)]
        return ""

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


def _folded(name: str) -> str:
    """A name in lower case. Other letters than those of ASCII may change their number with their case."""
    return name.lower() if name.isascii() else name
