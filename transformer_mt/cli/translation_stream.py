"""Lines from an input, through a translator, into a sink; and what a person is told of single lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transformer_mt.cli.line_files import STANDARD, name_of
from transformer_mt.cli.line_sink import LineSink
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.unknown_words import UnknownWords
from transformer_mt.decoding.lines.long_lines import TooLong

if TYPE_CHECKING:
    from transformer_mt.decoding.demands import SourceLine
    from transformer_mt.decoding.lines.line_formats import LineFormat
    from transformer_mt.decoding.lines.line_stream import LineTranslator
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translation import Translated


@dataclass
class TranslationStream:
    """What happens to each line between the translator and the sink.

    `name` is what messages call the input. `positions` are those of the model. `is_waited_for`: a person waits for each
    line, so that no bar is drawn. `first_line` is the number of the first line. `has_pictures`: the lines are pictures.
    """

    sink: LineSink
    format: "LineFormat"
    options: "SearchOptions"
    name: str
    positions: int
    is_waited_for: bool
    first_line: int = 1
    has_pictures: bool = False
    unknown: UnknownWords = field(default_factory=UnknownWords)

    def run(self, translator: "LineTranslator", chunks: "Iterable[Sequence[str | SourceLine]]") -> None:
        """Translate and write chunk by chunk, in order. UserError where the input or the output fails."""
        from transformer_mt.decoding.lines.line_stream import translate_chunks

        with self.sink.bar("Translating", self.is_waited_for) as bar:
            for chunk in translate_chunks(translator, chunks, self.options, self.first_line - 1):
                written: list[str] = []
                for number, translated in enumerate(chunk, start=self.first_line + self.sink.num_done):
                    self._tell(number, translated)
                    written += self.format.lines(number, translated, self.options.n_best)
                self.sink.write(written, len(chunk))
                bar.update(len(chunk))

    def _tell(self, number: int, translated: "Translated") -> None:
        """What a person should know of this line, on standard error."""
        from transformer_mt.data.longest_line import LONGEST_LINE, is_beyond
        from transformer_mt.finishing.confidence import confidence_of

        self.unknown.add(translated.unknown_words)
        where = f"line {number}" if self.name == name_of(STANDARD) else f"{self.name}, line {number}"
        if is_beyond(translated.source):
            remark(f"{self.name}, line {number}: longer than {LONGEST_LINE:,} bytes, left blank. Break it up.")
        elif translated.problem:
            remark(f"{where}: {translated.problem}; left blank")
        elif translated.too_long:
            done = (OF_PICTURES if self.has_pictures else WHAT_BECOMES)[self.options.too_long]
            remark(f"{where}: longer than the model's {self.positions} positions, {done}")
        if translated.rejected:
            remark(f"{where}: confidence {confidence_of(translated.hypotheses):.2f}; left to a person")


WHAT_BECOMES = {
    TooLong.BLANK: "left blank; --too-long split translates it in pieces, truncate what fits",
    TooLong.TRUNCATE: "the beginning was translated",
    TooLong.SPLIT: "translated in pieces",
}
# A picture has no sentences to be cut into: what `split` says of it is a problem of the line.
OF_PICTURES = {**WHAT_BECOMES, TooLong.BLANK: "left blank; --too-long truncate translates what fits"}
