"""HTML as tags and text. The tokens of a text, joined, are the text, whatever it holds.

The parser of Python's library gives neither an end tag nor an unfinished comment as it was written, so it serves the
tests alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

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
_VALUE = r"""=\s*+(?:"[^"]*+"|'[^']*+'|(?!["']))"""
_TOKEN = re.compile(
    rf"""
    (?P<point><!--(?:-?>|.*?(?:-->|\Z))|<![A-Za-z\[][^<>]*+>|<\?[^<>]*+>)
    | </(?P<end>{_NAME})(?:[\s/][^<>]*+)?+>
    | <(?P<start>{_NAME})(?:[\s/](?:{_VALUE}|[^<>=])*+)?+>
    """,
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""[\s/"'](?P<key>[^\s=/"'<>]+)\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^\s>]+)""")


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of a text. What is no tag, comment or declaration is text, an unclosed `<` for example."""
    end = 0
    while (match := _TOKEN.search(text, end)) is not None:
        if match.start() > end:
            yield Token(Kind.TEXT, text[end : match.start()])
        token = _token(match)
        yield token
        end = match.end()
        if token.kind is Kind.START and token.name in RAW:
            closing = re.compile(rf"</{token.name}\s*>", re.IGNORECASE).search(text, end)
            raw_end = closing.start() if closing else len(text)
            if raw_end > end:
                yield Token(Kind.TEXT, text[end:raw_end])
            end = raw_end
    if end < len(text):
        yield Token(Kind.TEXT, text[end:])


def _token(match: re.Match[str]) -> Token:
    raw = match[0]
    if match["point"] is not None:
        is_doctype = raw[:9].lower() == "<!doctype"
        return Token(Kind.POINT, raw, "!doctype" if is_doctype else "!")
    if match["end"] is not None:
        return Token(Kind.END, raw, match["end"].lower())
    name = match["start"].lower()
    is_void = name in VOID or (raw.endswith("/>") and name not in BLOCKS | RAW)
    return Token(Kind.POINT if is_void else Kind.START, raw, name)
