"""Translations that keep addresses, numbers and placeholders of their source, each once for each time it stands there.

What the model can write exactly is a constraint of the line, so that it stands where the model puts it. Where it cannot
write all of them, or writes one twice, the model translates the line without them. They are then put back like points
of HTML, along the alignment of the words.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import and_

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.config.switching_off import named_by
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.word_splitting import has_word
from transformer_mt.decoding.demands import SourceLine, list_of_lines, list_of_texts, with_places
from transformer_mt.decoding.glossary import Alternatives
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.lines.target_language import Tagged, TargetLanguages
from transformer_mt.decoding.lines.wrapping import WrappingTranslator
from transformer_mt.decoding.phrase_lists import PhraseLists
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translation import Translated
from transformer_mt.errors import UserError
from transformer_mt.markup.html_translator import HtmlTranslator
from transformer_mt.markup.kept import Span, finder

_POINT = re.compile(r"<img id=kept(\d+)>")
_JOINT = re.compile(r"(?<![\s>])(?=<img id=kept)|(?<=>)(?!\s)")  # where a point has no space beside it; text has no >


class KeepingTranslator(WrappingTranslator):
    """A translator of texts in which stretches of some `kinds` (names of `KINDS`) come out as they are.

    `aligner` is asked for one of the two languages where something must be put back, once.
    """

    def __init__(
        self, translator: LineTranslator, tgt_tokenizer: Tokenizer, kinds: Iterable[str], aligner: Callable[[], Aligner]
    ) -> None:
        """UserError where `kinds` are no list of such names."""
        super().__init__(translator)
        self.tgt_tokenizer = tgt_tokenizer
        self._find = finder(list_of_texts(kinds, "KeepingTranslator", "kind"))
        self._aligner = aligner
        origin = partial(named_by, translator.config.decoding)
        self._glossary = PhraseLists(tgt_tokenizer, tgt_tokenizer, origin).glossary

    def translate_lines(
        self, texts: Iterable[str | SourceLine], options: SearchOptions | None = None
    ) -> list[Translated]:
        """All hypotheses of each text, in order, that keep what is to be kept: each stretch as often as in the text.

        A text that has a prefix or constraints, and whose hypotheses all lose something, has none, and a `problem`.
        Raises UserError where constraints are ordered, because what is kept has no order.
        """
        options = options or search_options(self.config.decoding)
        refuse_order(options)
        given = with_places(list_of_lines(texts))
        languages = TargetLanguages.of(self.config)
        tagged = [languages.typed(line.text) for line in given]
        lines = [replace(line, text=one.text) for line, one in zip(given, tagged, strict=True)]
        spans = [[] if is_beyond(line.text) else self._find(line.text) for line in lines]
        is_other_search = options.is_sampling or options.diverse_beam_groups > 1  # which takes no constraints
        tried = [
            i
            for i, line in enumerate(lines)
            if not spans[i] or _is_bound(line) or (not is_other_search and self._can_be_written(line, spans[i]))
        ]
        results: dict[int, Translated] = {}
        demanded = [lines[i] if is_other_search else self._demanding(lines[i], spans[i], options) for i in tried]
        demanded = [_behind_tag(tagged[i].tag, line) for i, line in zip(tried, demanded, strict=True)]
        for i, translated in zip(tried, self.translator.translate_lines(demanded, options), strict=True):
            results[i] = self._checked(translated, lines[i], spans[i])
        left = [i for i in range(len(lines)) if i not in results or (spans[i] and _is_lost(results[i], lines[i]))]
        around = [
            _behind_tag(tagged[i].tag, SourceLine(_with_points(lines[i].text, spans[i]), place=lines[i].place))
            for i in left
        ]
        for i, translated in zip(left, self._around_points(around, options), strict=True):
            written = [replace(h, text=self._put_back(h.text, lines[i].text, spans[i])) for h in translated.hypotheses]
            results[i] = self._checked(replace(translated, hypotheses=written), lines[i], spans[i])
        return [replace(results[i], source=line.text) for i, line in enumerate(given)]

    def _around_points(self, lines: list[SourceLine], options: SearchOptions) -> list[Translated]:
        """Lines with a point for each stretch, translated; or why they cannot be, when others have their translation
        already.
        """
        if not lines:
            return []
        if isinstance(self._by_points, str):
            why = f"what it keeps can only be put back along word alignments, and there are none: {self._by_points}"
            return [Translated(line.text, [], problem=why) for line in lines]
        return self._by_points.translate_lines(lines, options)

    @cached_property
    def _by_points(self) -> HtmlTranslator | str:
        """What puts back, or why there is nothing that does: most lines need nothing of it."""
        try:
            return HtmlTranslator(self.translator, self._aligner())
        except UserError as error:
            return str(error)

    def _demanding(self, line: SourceLine, spans: Sequence[Span], options: SearchOptions) -> SourceLine:
        """The line with a constraint for each stretch that none of its own holds, nor the translation of a term: within
        another one a constraint does not count.
        """
        if not spans:
            return line
        terms: Sequence[Alternatives] = ()
        if options.glossary is not None:
            terms = self._glossary(options.glossary).constraints_of(line.text, line.constraints)
        held = sum(map(self._held_by, (*line.constraints, *terms)), Counter[str]())
        more = []
        for start, end in spans:
            stretch = line.text[start:end]
            if held[stretch] > 0:
                held[stretch] -= 1
            else:
                more.append(stretch)
        return replace(line, constraints=(*line.constraints, *more))

    def _held_by(self, constraint: str | Alternatives) -> Counter[str]:
        """The stretches that a constraint holds, whichever of its phrases meets it."""
        phrases = (constraint,) if isinstance(constraint, str) else constraint
        found = [Counter(phrase[start:end] for start, end in self._find(phrase)) for phrase in phrases]
        return reduce(and_, found) if found else Counter()

    def _can_be_written(self, line: SourceLine, spans: Sequence[Span]) -> bool:
        """Whether the model has tokens for every stretch, exactly, and some text around them."""
        tokenizer = self.tgt_tokenizer
        rest = "".join(part for _, part in _around(line.text, spans))
        stretches = [line.text[start:end] for start, end in spans]
        ids = tokenizer.encode_batch(stretches)
        exact = all(UNK_ID not in row and tokenizer.decode(row) == one for row, one in zip(ids, stretches, strict=True))
        return exact and has_word(rest)

    def _checked(self, translated: Translated, line: SourceLine, spans: Sequence[Span]) -> Translated:
        """The hypotheses that have each stretch as often as the source."""
        if not spans or not translated.hypotheses:
            return translated
        wrong = [self._wrong_in(h.text, line.text, spans) for h in translated.hypotheses]
        right = [h for h, found in zip(translated.hypotheses, wrong, strict=True) if not found]
        problem = "" if right else f"no translation is found that keeps each of these once: {', '.join(wrong[0])}"
        return replace(translated, hypotheses=right, problem=problem)

    def _wrong_in(self, written: str, text: str, spans: Sequence[Span]) -> list[str]:
        """The stretches of a text that a translation has less or more often."""
        wanted = Counter(text[start:end] for start, end in spans)
        found = Counter(written[start:end] for start, end in self._find(written))
        return [stretch for stretch, number in wanted.items() if found[stretch] != number]

    def _put_back(self, written: str, text: str, spans: Sequence[Span]) -> str:
        """The translation as text, with what was taken out in the place of its points. Where something would run into
        its neighbours, all have a space on both sides.
        """
        tight = _filled(written, text, spans)
        return _filled(_JOINT.sub(" ", written), text, spans) if self._wrong_in(tight, text, spans) else tight


def refuse_order(options: SearchOptions) -> None:
    """Raise UserError where constraints are ordered."""
    if options.constraints == "ordered":
        raise UserError(
            "keep was asked for, and constraints are ordered. What is kept has no order in a translation: take "
            "constraints unordered, or leave out keep."
        )


def _is_bound(line: SourceLine) -> bool:
    """Whether something more is demanded of a line's translation, so that nothing can be put into it afterwards."""
    return bool(line.prefix.strip() or line.constraints)


def _is_lost(translated: Translated, line: SourceLine) -> bool:
    """Whether a line has no translation that keeps all, and may have one without what is kept."""
    return not translated.hypotheses and translated.problem != "" and not _is_bound(line)


def _behind_tag(tag: str, line: SourceLine) -> SourceLine:
    """The line with the tag of its language, if it has one."""
    return replace(line, text=Tagged(tag, line.text).whole)


def _around(text: str, spans: Sequence[Span]) -> Iterable[tuple[int, str]]:
    """The text before each span, with its number, and behind the last."""
    last = 0
    for number, (start, end) in enumerate(spans):
        yield number, text[last:start]
        last = end
    yield len(spans), text[last:]


def _with_points(text: str, spans: Sequence[Span]) -> str:
    """The text as HTML, with a point in the place of each span."""
    parts = [
        html.escape(part, quote=False) + f"<img id=kept{number}>" * (number < len(spans))
        for number, part in _around(text, spans)
    ]
    return "".join(parts)


def _filled(written: str, text: str, spans: Sequence[Span]) -> str:
    """The translation as text, with each stretch in the place of its point."""

    def stretch(match: re.Match[str]) -> str:
        start, end = spans[int(match[1])]
        return html.escape(text[start:end], quote=False)

    return html.unescape(_POINT.sub(stretch, written)).strip()
