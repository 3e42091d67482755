"""Translations with the words of the source that each of their words translates."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from transformer_mt.aligning.aligner import Pair
from transformer_mt.aligning.alignment import Alignment, HardLinks, SoftLinks
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.lines.wrapping import Treatment
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated


class PairAligner(Protocol):
    """An `Aligner`, or an `AttentionAligner`."""

    def align(self, pairs: Sequence[Pair]) -> list[Alignment]: ...

    def soft_links(self, pairs: Sequence[Pair]) -> list[SoftLinks]: ...


class AlignedTranslator(Treatment):
    """A translator whose hypotheses have the field `alignment`, by an aligner of the two languages.

    Of an `Aligner` they are the alignments that `tmt align` writes of the same pairs: links, or with `soft` links and
    probabilities. A pair that is too long for the aligner has none.
    """

    def __init__(self, translator: LineTranslator, aligner: PairAligner, soft: bool = False) -> None:
        super().__init__(translator)
        self.aligner = aligner
        self.soft = soft

    def treated(self, lines: list[Translated], options: SearchOptions) -> list[Translated]:
        """The same lines; each hypothesis has its alignment."""
        links = iter(self._links([(line.source, h.text) for line in lines for h in line.hypotheses]))
        return [
            replace(line, hypotheses=[replace(h, alignment=next(links)) for h in line.hypotheses], is_aligned=True)
            for line in lines
        ]

    def _links(self, pairs: list[Pair]) -> Sequence[HardLinks | SoftLinks]:
        if self.soft:
            return self.aligner.soft_links(pairs)
        return [alignment.white_space_links() for alignment in self.aligner.align(pairs)]
