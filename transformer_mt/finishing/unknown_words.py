"""Words that a model of whole words cannot write, put in afterwards: copied from the source, or from a dictionary."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.aligning.words import Word, normal_form, words_of
from transformer_mt.config.special_ids import SPECIAL_TOKENS, UNK_ID
from transformer_mt.config.switching_off import named_by
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.word_splitting import JOINER, join_words
from transformer_mt.decoding.demands import lines_named_by
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.lines.wrapping import Treatment
from transformer_mt.decoding.phrase_lists import PhraseLists
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted

UNK = SPECIAL_TOKENS[UNK_ID]
# A source word that one UNK has taken already counts by this factor for the next: two names in a row are two names.
TAKEN = 0.01
MOST_CELLS = 2**22  # UNKs x source words that are compared at once: 32 MB, and 2,000 of each
STRETCH = 1000  # words; in lines beyond that, a word further from its place is not looked for
Span = tuple[int, int]
Floats = NDArray[np.float64]


class UnknownWordReplacer(Treatment):
    """A translator whose search may write UNK, and whose texts have words in the place of each UNK: the source word
    that it translates as it stands there, or what `dictionary` gives for that word.

    UNK stands for any word that the model cannot write. So the probability that source word s explains it is the
    probability, by the aligner, that s translates to such a word; it is 1 where the aligner does not know s, which is
    then a name as a rule. This is multiplied by the aligner's prior of the places. The likeliest pair of an UNK and a
    source word is linked first.

    Tokens, scores and log-probabilities stay those of the search. A hypothesis that holds a phrase of `avoid` once the
    words are in is left out. Of a tokenizer that `knows_every_text` there is no UNK to replace.
    """

    def __init__(
        self,
        translator: LineTranslator,
        aligner: Aligner,
        tgt_tokenizer: Tokenizer,
        dictionary: "Mapping[str, str] | None" = None,
    ) -> None:
        """dictionary: translations of source words, see `read_dictionary`."""
        super().__init__(translator)
        self.aligner = aligner
        self.tgt_tokenizer = tgt_tokenizer
        self.dictionary = dictionary or {}
        origin = partial(named_by, translator.config.decoding)
        self._phrase_lists = PhraseLists(tgt_tokenizer, tgt_tokenizer, origin)

    def changed(self, options: SearchOptions) -> SearchOptions:
        """The search may write UNK."""
        return options.model_copy(update={"allow_unk": True})

    def treated(self, lines: list[Translated], options: SearchOptions) -> list[Translated]:
        """The lines with words for each UNK."""
        return [self._treated(line, options) for line in lines]

    def _treated(self, line: Translated, options: SearchOptions) -> Translated:
        if not any(UNK in h.tokens for h in line.hypotheses):
            return line
        src = words_of(TargetLanguages.of(self.config).typed(line.source).text)  # a tag is no word of it
        filled = [replace(h, text=self._filled(h, src)) for h in line.hypotheses]
        found, problem = self._phrase_lists.without_avoided(filled, options.avoid, "in the place of UNK")
        return replace(line, hypotheses=found, problem=problem)

    def _filled(self, hypothesis: Translation, src: list[Word]) -> str:
        """The text of a hypothesis with a word for each UNK."""
        spans = unk_spans(hypothesis)
        filled, end = "", 0
        for (start, stop), place in zip(spans, self.linked_words(hypothesis.text, spans, src), strict=True):
            filled += hypothesis.text[end:start] + self._in_target(src[place].text)
            end = stop
        return filled + hypothesis.text[end:]

    def _in_target(self, word: str) -> str:
        return self.dictionary.get(word) or self.dictionary.get(normal_form(word)) or word

    def linked_words(self, text: str, spans: list[Span], src: list[Word]) -> list[int]:
        """The place of the source word behind each UNK, which stand at these spans of the text.

        Where UNKs x source words are more than `MOST_CELLS`, up to `STRETCH` UNKs are linked at a time, each to a word
        within some `STRETCH` words of its place, so that time and memory grow with the line alone.
        """
        if not spans:
            return []
        here, tgt_len = _places(text, spans)
        numbers = np.array(self.aligner.src_vocabulary.find([normal_form(word.text) for word in src]))
        likely = np.where(numbers < 0, 1.0, self._unwritable[numbers])
        here, there = here / tgt_len, np.arange(1, len(src) + 1) / len(src)
        links: list[int] = []
        for unks, words in _stretches(here, len(src)):
            distances = np.abs(here[unks, None] - there[words])
            found = words.start + _likeliest(likely[words] * np.exp(-self.aligner.forward.tension * distances))
            np.multiply.at(likely, found, TAKEN)
            links += found.tolist()
        return links

    @cached_property
    def _unwritable(self) -> Floats:
        """The probability that each source word translates to one that the model cannot write (num_src_words,)."""
        writable = {normal_form(entry.strip(JOINER)) for entry in self.tgt_tokenizer.backend.get_vocab()}
        return self.aligner.probability_of(lambda word: word not in writable)


def _places(text: str, spans: list[Span]) -> tuple[Floats, int]:
    """Which word of the text each UNK is, from 1, and the number of words. An UNK is one word."""
    ends = [0, *(end for _, end in spans)]
    before = [len(words_of(text[end:start])) for end, (start, _) in zip(ends, spans, strict=False)]
    here = np.cumsum(np.array(before) + 1)
    return here.astype(np.float64), int(here[-1]) + len(words_of(text[ends[-1] :]))


def _stretches(places: Floats, num_words: int) -> Iterator[tuple[slice, slice]]:
    """Which UNKs are linked together, and among which source words. `places` are those of the UNKs as shares of the
    text, in ascending order.
    """
    if len(places) * num_words <= MOST_CELLS:
        yield slice(0, len(places)), slice(0, num_words)
        return
    centres, start = (places * num_words).astype(np.int64), 0
    while start < len(places):
        first = int(centres[start])
        end = min(start + STRETCH, int(np.searchsorted(centres, first + STRETCH)))
        yield slice(start, end), slice(max(0, first - STRETCH), first + 2 * STRETCH)
        start = end


def _likeliest(scores: Floats) -> NDArray[np.int64]:
    """The place of each UNK's source word, by scores (UNKs, source words), which are changed. The likeliest pair comes
    first, and of equal ones the first.
    """
    links = np.zeros(len(scores), np.int64)
    best = scores.max(axis=1)  # of each UNK, at most: scores only fall
    while best[unk := int(best.argmax())] >= 0:
        word = int(scores[unk].argmax())
        if scores[unk, word] < best[unk]:  # others have taken words since
            best[unk] = scores[unk, word]
        else:
            links[unk], best[unk] = word, -1.0
            scores[:, word] *= TAKEN
    return links


def unk_spans(hypothesis: Translation) -> list[Span]:
    """Where each UNK stands in the text of a hypothesis of whole words. A text may hold the letters of UNK besides, so
    its tokens are looked for one after the other.
    """
    spans, text, end = [], hypothesis.text, 0
    for token in hypothesis.tokens:
        word = join_words([token])
        start = text.index(word, end)
        assert not text[end:start].strip(), "the text of a search is its tokens, with white space between them"
        end = start + len(word)
        if token == UNK:
            spans.append((start, end))
    return spans


def read_dictionary(path: Path, named_by: str = "--unk-dictionary") -> dict[str, str]:
    """The translations of source words: on each line of the file a word, a tab and its translation, one word or more.

    A word that is lower case in the file stands for all its forms in the source that have no line of their own. Raises
    UserError, by file and line, for a line that is not this, and for a second translation of a word.
    """
    found: dict[str, str] = {}
    for number, line in lines_named_by(named_by, path):
        columns = [" ".join(unicodedata.normalize("NFC", column).split()) for column in line.split("\t")]
        mistake = _mistake(columns)
        if mistake:
            raise UserError(f"{path}, line {number}: {mistake}")
        word, translation = columns
        if found.setdefault(word, translation) != translation:
            raise UserError(f"{path}, line {number}: {word} is {found[word]!r} on a line before. Keep one of them.")
    if not found:
        raise UserError(f"{path} has no line. Write a source word, a tab and its translation on each.")
    return found


def _mistake(columns: Iterable[str]) -> str:
    """What is wrong with a line of a dictionary; nothing where it is right."""
    columns = list(columns)
    if columns == [""]:
        return "a blank line. Take it out."
    if len(columns) != 2:
        return f"{counted(len(columns), 'column')}, and there are two: a source word, a tab and its translation."
    for side, column in zip(("source word", "translation"), columns, strict=True):
        if not column:
            return f"the {side} is blank. Write it, or take out the line."
    if len(words_of(columns[0])) != 1:
        return f"{columns[0]!r} is {len(words_of(columns[0]))} words to the model, which writes UNK for each by itself."
    return ""
