"""HTML in, HTML out: the text between tags is translated, and the tags follow the words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.aligning.alignment import Alignment, HardLinks
from transformer_mt.aligning.words import Word
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.decoding.demands import SourceLine, list_of_lines, with_places
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.lines.target_language import Tagged, TargetLanguages
from transformer_mt.decoding.lines.wrapping import WrappingTranslator
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translation import Translated, Translation, in_order, side_by_side
from transformer_mt.errors import UserError
from transformer_mt.markup.marked import Marked, take_out
from transformer_mt.markup.placing import WordLinks
from transformer_mt.markup.writing import put_back

_DIGIT = re.compile(r"\d")


class HtmlTranslator(WrappingTranslator):
    """A translator of texts that are HTML, or XML, each a piece of its own. An aligner of the two languages places
    tags.
    """

    def __init__(self, translator: LineTranslator, aligner: Aligner, xml: bool = False) -> None:
        super().__init__(translator)
        self.aligner = aligner
        self.xml = xml

    def translate_lines(
        self, texts: Iterable[str | SourceLine], options: SearchOptions | None = None
    ) -> list[Translated]:
        """All hypotheses of each text, in order. Those of its segments stand side by side: the first, then the second,
        and so on, scored as one hypothesis. Each segment has the tag of a language that its text begins with.

        A text has none where one of its segments has none. Raises UserError for a line with a prefix or constraints.
        """
        options = options or search_options(self.config.decoding)
        lines = list_of_lines(texts)
        if any(line.prefix for line in lines):
            raise UserError(
                "A line of HTML has a prefix, and tags are put in only afterwards. Leave out prefix or HTML."
            )
        if any(line.constraints for line in lines):
            raise UserError(
                "A line of HTML has constraints, which belong to a whole line, and HTML is translated in segments. "
                "Leave out constraints or HTML."
            )
        # What is too long for any model is not looked at: the translator says so of it.
        languages = TargetLanguages.of(self.config)
        tagged = [Tagged("", "") if is_beyond(line.text) else languages.typed(line.text) for line in lines]
        marked = [take_out(one.text, self.xml) for one in tagged]
        flat = [
            SourceLine(Tagged(read.tag, segment.text).whole, place=(*line.place, part))
            for line, read, one in zip(with_places(lines), tagged, marked, strict=True)
            for part, segment in enumerate(one.segments)
        ]
        results = iter(self.translator.translate_lines(flat, options))
        of_lines = [[next(results) for _ in one.segments] for one in marked]
        pairs = [
            (segment.text, h.text)
            for one, found in zip(marked, of_lines, strict=True)
            for segment, result in zip(one.segments, found, strict=True)
            for h in result.hypotheses
        ]
        alignments = iter(self.aligner.align(pairs))
        joined = []
        for line, one, found in zip(lines, marked, of_lines, strict=True):
            aligned = [[next(alignments) for _ in result.hypotheses] for result in found]
            joined.append(_join(line.text, one, found, aligned, options))
        return joined


def _join(
    text: str, marked: Marked, found: Sequence[Translated], aligned: list[list[Alignment]], options: SearchOptions
) -> Translated:
    """The translation of a text from those of its segments."""
    hypotheses = list(_hypotheses(marked, found, aligned, options)) if text.strip() and not is_beyond(text) else []
    return Translated(
        text,
        in_order(hypotheses, options),
        too_long=is_beyond(text) or any(result.too_long for result in found),
        unknown_words=tuple(word for result in found for word in result.unknown_words),
        problem=next((result.problem for result in found if result.problem), ""),
    )


def _hypotheses(
    marked: Marked, found: Sequence[Translated], aligned: list[list[Alignment]], options: SearchOptions
) -> Iterator[Translation]:
    if not found:
        yield Translation(put_back(marked, [], []), 0.0, 0.0, [])
    for *ranked, alignments in zip(*(result.hypotheses for result in found), zip(*aligned, strict=False), strict=False):
        html = put_back(marked, [h.text for h in ranked], [_word_links(alignment) for alignment in alignments])
        yield side_by_side(html, ranked, options)


def _word_links(alignment: Alignment) -> WordLinks:
    src, tgt = ([(word.start, word.end) for word in words] for words in (alignment.src_words, alignment.tgt_words))
    return WordLinks(src, tgt, _with_numbers(alignment))


def _with_numbers(alignment: Alignment) -> HardLinks:
    """The links of an alignment, but a word with a digit that both sides have once is linked to itself alone: it is
    seldom one that the aligner knows.
    """
    here, there = _numbers_in(alignment.src_words), _numbers_in(alignment.tgt_words)
    same = {(here[text], there[text]) for text in here.keys() & there.keys()}
    src, tgt = {i for i, _ in same}, {j for _, j in same}
    return sorted({(i, j) for i, j in alignment.links if i not in src and j not in tgt} | same)


def _numbers_in(words: Sequence[Word]) -> dict[str, int]:
    """The places of words with a digit that come once."""
    times = Counter(word.text for word in words)
    return {word.text: i for i, word in enumerate(words) if times[word.text] == 1 and _DIGIT.search(word.text)}
