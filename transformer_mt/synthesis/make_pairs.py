"""Real lines and a translator to pairs, one for each line, in order. A pair that would do harm is blank."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.split import sentence_key
from transformer_mt.data.tokenizers import normalize
from transformer_mt.decoding.demands import SourceLine, with_places
from transformer_mt.decoding.lines.line_stream import CHARACTERS_A_LINE, LineTranslator
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted
from transformer_mt.synthesis.nearest import Likeness, nearest
from transformer_mt.synthesis.parallel_files import ParallelFiles, Row

DAMAGED = "\ufffd"
LINE_ENDS = str.maketrans({"\n": " ", "\r": " "})


class Blank(StrEnum):
    """Why a line is blank in all files, as the report counts it."""

    BLANK = "blank in the input"
    WITHOUT = "in a file of --without"
    NO_REFERENCE = "beside a real translation that is blank, too long or not UTF-8"
    DAMAGED = "not UTF-8"
    TOO_LONG = "too long for the model"
    NOTHING = "without a translation"
    BROKEN = "translated into half a character"
    BEFORE = "left blank by the model before"


@dataclass(frozen=True)
class Recipe:
    """What becomes of a real line and its translation. `tag`, which may be empty, goes before the source of the pair:
    the translation where `is_backward`, else the real line. Lines whose `sentence_key` is in `without` are left out. So
    are those that are in it behind their tag, one of `source_tags`, which the source of a config put there. A tag of
    `unread` stays before the line in the pair, and the translator is not given it. The tag of one of `languages` that
    is typed before a line asks for its translation: of a real target it is no part, and it hides no line either.
    """

    is_backward: bool
    tag: str = ""
    without: frozenset[int] = frozenset()
    source_tags: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    languages: TargetLanguages | None = None

    def refuses(self, line: str, reference: str | None = None) -> Blank | None:
        """Why this line is not even translated; None where it is. `reference` is its real translation, if the nearest
        to that is wanted.
        """
        if not line.strip():
            return Blank.BLANK
        if is_beyond(line):
            return Blank.TOO_LONG
        if DAMAGED in line:
            return Blank.DAMAGED
        if reference is not None and (not reference.strip() or is_beyond(reference) or DAMAGED in reference):
            return Blank.NO_REFERENCE
        texts = {line, behind(line, self.source_tags), self._untyped(line), reference or line}
        if self.without and any(sentence_key(text) in self.without for text in texts):
            return Blank.WITHOUT
        return None

    def row(self, real: str, translation: str, *others: str) -> Row:
        """Source and target, and behind them the other translations, as they make a pair in the place of the first."""
        real = (self._untyped(real) if self.is_backward else real).translate(LINE_ENDS)
        if self.is_backward:
            return self._tagged(translation), real, *map(self._tagged, others)
        return self._tagged(real), translation, *others

    def _tagged(self, src: str) -> str:
        return f"{self.tag} {src}" if self.tag else src

    def _untyped(self, line: str) -> str:
        return line if self.languages is None else self.languages.typed(line).text

    def is_of(self, row: Row, real: str) -> bool:
        """Whether this row, if it is not blank, was made of the line."""
        place = 1 if self.is_backward else 0
        return row[place] == self.row(real, "")[place]


def behind(line: str, tags: frozenset[str]) -> str:
    """What follows the tag that the line begins with, if that is one of these; else the line."""
    tag, _, text = line.partition(" ")
    return text if tag in tags else line


@dataclass
class Report:
    """How many lines came to what. `num_found` of them were there before."""

    num_lines: int = 0
    num_found: int = 0
    blank: Counter[Blank] = field(default_factory=Counter)

    @property
    def num_pairs(self) -> int:
        """The pairs that are not blank."""
        return self.num_lines - self.blank.total()


class Line(NamedTuple):
    """A real line and, where the nearest to it is wanted, its real translation."""

    text: str
    reference: str | None = None


@dataclass
class PairMaker:
    """`name` is what messages call the input. `tell` is called with the number of each line that the translator left
    blank, and why; `advance` with the number of lines that were done. With `likeness` the translation that is nearest
    to one of `references` makes the pair, and `with_likeliest` the likeliest one makes another: the third file has it.
    """

    translator: LineTranslator
    options: SearchOptions
    recipe: Recipe
    files: ParallelFiles
    name: str
    tell: Callable[[int, Blank], None] = lambda number, why: None
    advance: Callable[[int, Sequence[str]], None] = lambda number, unknown: None
    report: Report = field(default_factory=Report)
    likeness: Likeness | None = None
    references: Iterator[str] | None = None
    with_likeliest: bool = False

    def run(self, lines: Iterable[str], size: int) -> None:
        """Make the pairs of all lines that the files lack, up to `size` lines at a time.

        Lines are cut into the same parts however often the work was begun. So each is translated among the same others,
        and the files are those of a run that was never stopped. Raises UserError where what the files hold was not made
        of these lines.
        """
        is_there = True
        with self.translator.keep_processes():
            for texts in parts_of(lines, size):
                part = self._with_references(texts)
                found = self.files.read(len(part)) if is_there else []
                self._refuse_other(part, found)
                if len(found) == len(part):
                    self._count(part, found)
                else:
                    if is_there:
                        self.files.cut()
                    is_there = False
                    self.files.write(self._make(part))
                self.report.num_lines += len(part)
        if is_there and not self.files.is_at_end():
            raise UserError(
                f"{self.name} has {counted(self.report.num_lines, 'line')}, and {self.files.paths[0].parent} was begun "
                "with more. Give the same input, or choose another --output."
            )

    def _with_references(self, part: list[str]) -> list[Line]:
        if self.references is None:
            return [Line(text) for text in part]
        return [Line(*pair) for pair in zip(part, islice(self.references, len(part)), strict=True)]

    def _refuse_other(self, part: list[Line], found: list[Row]) -> None:
        for number, (line, row) in enumerate(zip(part, found, strict=False), start=self.report.num_lines + 1):
            if any(row) and (self.recipe.refuses(*line) or not self.recipe.is_of(row, line.text)):
                raise UserError(
                    f"{self.name}, line {number:,}, is not the line that {self.files.paths[0].parent} was begun with. "
                    "Give the same input, or choose another --output."
                )

    def _count(self, part: list[Line], found: list[Row]) -> None:
        for line, row in zip(part, found, strict=True):
            if not any(row):
                self.report.blank[self.recipe.refuses(*line) or Blank.BEFORE] += 1
        self.report.num_found += len(part)
        self.advance(len(part), ())

    def _make(self, part: list[Line]) -> list[Row]:
        first = self.report.num_lines
        refused = [self.recipe.refuses(*line) for line in part]
        texts = ["" if why else behind(line.text, self.recipe.unread) for line, why in zip(part, refused, strict=True)]
        asked: list[str] | list[SourceLine] = with_places(texts, first) if self.options.is_sampling else texts
        unknown: list[str] = []
        rows: list[Row] = []
        for number, (line, why, translated) in enumerate(
            zip(part, refused, self.translator.translate_lines(asked, self.options), strict=True), start=first + 1
        ):
            made = [text.translate(LINE_ENDS) for text in self._texts_of(translated, line.reference)]
            if why is None and (why := _why_useless(translated, made[0])) is not None:
                self.tell(number, why)
            if why is not None:
                self.report.blank[why] += 1
                rows.append(("",) * (1 + len(made)))
            else:
                rows.append(self.recipe.row(line.text, *made))
                unknown += translated.unknown_words
        self.advance(len(part), unknown)
        return rows

    def _texts_of(self, translated: Translated, reference: str | None) -> list[str]:
        """The best translation, or that nearest to the reference and, where it is wanted, the likeliest."""
        whole = [one for one in translated.hypotheses if one.text.strip() and DAMAGED not in one.text]
        if self.likeness is None or reference is None or not whole:
            return [translated.text] * (1 + self.with_likeliest)
        languages = self.recipe.languages
        tag = languages.parted(translated.source, self.options.to).tag if languages else ""
        config = self.translator.config
        language = language_of(tag) or config.data.tgt_lang
        chosen = [nearest(whole, normalize(reference, config.tokenizer.lowercase), self.likeness, language)]
        if self.with_likeliest:
            chosen.append(max(whole, key=lambda hypothesis: hypothesis.rank))  # the first, but for samples
        return [hypothesis.text for hypothesis in chosen]


def _why_useless(translated: Translated, text: str) -> Blank | None:
    if translated.too_long:
        return Blank.TOO_LONG
    if not text.strip():
        return Blank.NOTHING
    return Blank.BROKEN if DAMAGED in text else None  # a subword model has chosen bytes that are no character


def parts_of(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """The lines in parts of `size`, or fewer where they are long, by their texts alone."""
    part: list[str] = []
    weight = 0
    for line in lines:
        part.append(line)
        weight += 1 + len(line) // CHARACTERS_A_LINE
        if weight >= size:
            yield part
            part, weight = [], 0
    if part:
        yield part
