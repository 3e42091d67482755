"""A translation with the tags of its source."""

from collections.abc import Sequence

from transformer_mt.data.word_splitting import has_word
from transformer_mt.markup.marked import Marked, Segment, escape
from transformer_mt.markup.placing import Placed, WordLinks, place_elements


def put_back(marked: Marked, translations: Sequence[str], words: Sequence[WordLinks]) -> str:
    """The line of HTML with the translation of each segment. Each has the words and links of that segment.

    Every tag of the repaired line comes once, and tags are nested as they were.
    """
    segments = iter(zip(translations, words, strict=True))
    return "".join(part if isinstance(part, str) else _write_segment(part, *next(segments)) for part in marked.parts)


def _write_segment(segment: Segment, translation: str, words: WordLinks) -> str:
    writing = _Writing(translation, words)
    writing.add(place_elements(segment.elements, words), 0, len(words.tgt_words))
    return segment.before + writing.finish() + segment.after


class _Writing:
    """The HTML in the making.

    White space of the translation between two words is written before the tags that open there, and after those that
    close. A point has white space where it has it in the source.
    """

    def __init__(self, translation: str, words: WordLinks) -> None:
        self.translation = translation
        self.spans = words.tgt_words
        self.written: list[str] = []
        self._gap = ""  # white space of the translation that is still to be written
        self._wants_space = False  # a point was written that has white space after it
        self._after_space = True  # as at the beginning

    def add(self, placed: Sequence[Placed], first: int, end: int) -> None:
        """The words from `first` to `end`, and what is placed among them."""
        for one in placed:
            self._add_words(first, one.first)
            if one.first == one.end:
                self._add_empty(one)
            else:
                self._add_gap_before(one.first)
                self.written.append(one.element.opening)
                self.add(one.inner, one.first, one.end)
                self.written.append(one.element.closing)
            first = one.end
        self._add_words(first, end)

    def finish(self) -> str:
        """All that was written."""
        return "".join(self.written)

    def _add_words(self, first: int, end: int) -> None:
        for j in range(first, end):
            self._add_gap_before(j)
            start, stop = self.spans[j]
            self.written.append(escape(self.translation[start:stop]))
            self._after_space = False
            following = self.spans[j + 1][0] if j + 1 < len(self.spans) else stop
            self._gap = self.translation[stop:following]

    def _add_empty(self, one: Placed) -> None:
        """A point, or an element around no words."""
        element = one.element
        if element.space_before:
            self._add_gap(" ")
        elif not element.space_after:
            self._add_gap("")
        self.written.append(element.opening)
        if not element.closing:
            self._after_space = False
        self._wants_space = element.space_after
        self.add(one.inner, one.first, one.end)
        self.written.append(element.closing)

    def _add_gap_before(self, j: int) -> None:
        """White space before a word, or a tag that opens before it."""
        start, stop = self.spans[j]
        self._add_gap(" " * (self._wants_space and has_word(self.translation[start:stop])))
        self._wants_space = False

    def _add_gap(self, otherwise: str) -> None:
        """The translation's white space, or another where it has none here."""
        if self._gap or not self._after_space:
            self.written.append(self._gap or otherwise)
            self._after_space = bool(self._gap or otherwise)
        self._gap = ""
