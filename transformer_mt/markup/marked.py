"""A text without its tags, segment by segment, and the tags with their places."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile

from transformer_mt.markup.repair import repaired
from transformer_mt.markup.tokens import Kind, Token, tokens_of

_SPACES = re.compile(r"(?!(?<=\d)[\u00a0\u2009\u202f]\d{3}(?!\d))\s+")  # but for what parts the thousands of a number
_LETTER = re.compile(r"[^\W\d_]")
_PIECES = re.compile(r"\s+|&#?\w+;|[^\s&]+")  # repaired text has no other `&`
_DEEPEST = 100  # tags in tags; a person writes a few
_INVISIBLE = frozenset(["!", "wbr"])  # nobody sees these between two letters
_ATTACHED_MARK = re.compile(r"[.,;:!?)\]}»”’…%。，、；：！？」』）】।؟،؛]")  # belongs to the word before it


@dataclass
class Element:
    """An inline element around `text[start:end]` of its segment. A point has only a place: a void tag, a comment, or an
    element that is not translated.

    The flags say whether white space, or an end of the segment, stands directly before and after it.
    """

    opening: str
    closing: str
    start: int
    end: int
    space_before: bool
    space_after: bool = True
    inner: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class Segment:
    """What is translated as a line of its own, and the white space around it, as it is written there: an entity for a
    line end is still one, and ends no line.
    """

    text: str
    elements: list[Element]
    before: str
    after: str


@dataclass(frozen=True)
class Marked:
    """A line of HTML, taken apart, in order: the segments, and what stays as it is."""

    parts: list[str | Segment]

    @property
    def segments(self) -> list[Segment]:
        """What is to be translated."""
        return [part for part in self.parts if isinstance(part, Segment)]


def take_out(line: str, xml: bool = False) -> Marked:
    """Take the tags out of a line of HTML, or of XML, which is `repaired` first. Entities become characters.

    A segment reaches from one block tag to the next. Text without a letter is none: it stays as it is, and so does text
    in more than a hundred inline tags.
    """
    parts: list[str | Segment] = []
    run: list[Token] = []
    for token, parts_text in repaired(list(tokens_of(line, xml))):
        if parts_text:
            parts += [*_segment_or_text(run), token.raw]
            run = []
        else:
            run.append(token)
    return Marked([*parts, *_segment_or_text(run)])


def escape(text: str) -> str:
    """Text as HTML."""
    return html.escape(text, quote=False)


def _segment_or_text(run: Sequence[Token]) -> Iterator[str | Segment]:
    text = "".join(html.unescape(token.raw) for token in run if token.kind is Kind.TEXT)
    depths = accumulate({Kind.START: 1, Kind.END: -1}.get(token.kind, 0) for token in run)
    if _LETTER.search(text) and max(depths) <= _DEEPEST:
        yield _segment(run)
    elif run:
        yield "".join(token.raw for token in run)


def _segment(run: Sequence[Token]) -> Segment:
    taking = _Taking()
    for token in run:
        if token.kind is Kind.TEXT:
            taking.add_text(html.unescape(token.raw))
        elif token.kind is Kind.END:
            taking.close(token.raw)
        else:
            taking.open(token)
    first, last = ([] if token.kind is not Kind.TEXT else _PIECES.findall(token.raw) for token in (run[0], run[-1]))
    after = list(takewhile(_is_space, reversed(last)))
    return Segment(taking.finish(), taking.top, "".join(takewhile(_is_space, first)), "".join(reversed(after)))


def _is_space(piece: str) -> bool:
    return html.unescape(piece).isspace()


class _Taking:
    """A segment in the making."""

    def __init__(self) -> None:
        self.top: list[Element] = []
        self._texts: list[str] = []
        self._length = 0  # of all texts
        self._open: list[Element] = []
        self._all: list[Element] = []
        self._recent: list[Element] = []  # those that were opened or closed after the last text
        self._is_after_point = False  # a point was opened after the last text
        self._wants_space = False  # a point stands between two letters that do not belong together

    def add_text(self, text: str) -> None:
        """Text behind what there is. White space becomes one blank, none at the beginning."""
        if not text:
            return
        for element in self._recent:
            element.space_after = text[0].isspace()
        is_attached = self._wants_space and _ATTACHED_MARK.match(text) is not None
        text = _SPACES.sub(" ", text)
        if self._ends_in_space():
            text = text.removeprefix(" ")
        if is_attached and self._texts and self._ends_in_space():  # "press <kbd>F1</kbd>, then" without the key
            self._texts[-1] = self._texts[-1][:-1]
            self._length -= 1
            self._move_back(self._recent)
        elif self._wants_space and not is_attached and not self._ends_in_space() and text[:1] != " ":
            text = f" {text}"
        self._wants_space, self._is_after_point, self._recent = False, False, []
        if text:
            self._texts.append(text)
            self._length += len(text)

    def open(self, token: Token) -> None:
        """A start tag or a point."""
        at = self._length
        element = Element(token.raw, "", at, at, self._ends_in_space() and not self._is_after_point)
        (self._open[-1].inner if self._open else self.top).append(element)
        self._all.append(element)
        self._recent.append(element)
        if token.kind is Kind.START:
            self._open.append(element)
        else:
            self._is_after_point = True
            self._wants_space |= token.name not in _INVISIBLE

    def close(self, raw: str) -> None:
        """The end tag of the element that was opened last."""
        element = self._open.pop()
        element.closing, element.end = raw, self._length
        self._recent.append(element)

    def finish(self) -> str:
        """The text, without white space at its end."""
        text = "".join(self._texts)
        self._length = len(text.rstrip(" "))
        self._move_back(self._all)
        return text[: self._length]

    def _ends_in_space(self) -> bool:
        return not self._texts or self._texts[-1][-1] == " "

    def _move_back(self, elements: list[Element]) -> None:
        for element in elements:
            element.start, element.end = min(element.start, self._length), min(element.end, self._length)
