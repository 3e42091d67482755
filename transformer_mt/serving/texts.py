"""Texts of a request as sentences, and their translations as texts again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.long_lines import Piece, join_texts
from transformer_mt.decoding.lines.sentences import split_sentences
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated, in_order, side_by_side

Search = Callable[[list[SourceLine]], Awaitable[list[Translated]]]


@dataclass(frozen=True)
class Sentences:
    """A text in sentences, with the white space before each, and behind the last."""

    text: str
    pieces: list[Piece]
    space_after: str

    @classmethod
    def of(cls, text: str, split: bool = True) -> "Sentences":
        """The sentences of a text; where it is not to be `split`, the whole text without the white space around it."""
        stripped = text.strip()
        start = len(text) - len(text.lstrip())
        whole = [(start, start + len(stripped))] if stripped else []
        spans = split_sentences(text) if split else whole
        before = [0, *(end for _, end in spans)]
        pieces = [Piece(text[start:end], text[last:start]) for last, (start, end) in zip(before, spans, strict=False)]
        return cls(text, pieces, text[before[-1] :])

    def joined(self, found: Sequence[Translated], options: SearchOptions) -> Translated:
        """The text's hypotheses from those of its sentences: the first side by side, then the second, and so on."""
        hypotheses = []
        if len(self.pieces) == 1 and not self.pieces[0].space_before and not self.space_after:
            hypotheses = found[0].hypotheses
        elif found:
            for ranked in zip(*(one.hypotheses for one in found), strict=False):
                hypotheses.append(side_by_side(self.with_spaces([h.text for h in ranked]), ranked, options))
        problem = next((one.problem for one in found if one.problem), "")
        unknown = tuple(word for one in found for word in one.unknown_words)
        too_long = any(one.too_long for one in found)
        return Translated(self.text, in_order(hypotheses, options), too_long, unknown, problem)

    def with_spaces(self, texts: Sequence[str]) -> str:
        """The translations of the sentences as one text, with the white space that the source has."""
        first = self.pieces[0].space_before if self.pieces else ""
        return first + join_texts(texts, self.pieces) + self.space_after


async def translate_texts(
    texts: Sequence[SourceLine], search: Search, options: SearchOptions, split: bool = True
) -> list[Translated]:
    """The translations of texts, sentence by sentence. A sentence's place is that of its text, and its own in it: so
    what is drawn by chance for it does not depend on who else asks.
    """
    parted = [Sentences.of(text.text, split) for text in texts]
    lines = [
        SourceLine(piece.text, place=(*text.place, i))
        for text, sentences in zip(texts, parted, strict=True)
        for i, piece in enumerate(sentences.pieces)
    ]
    results = iter(await search(lines))
    return [one.joined([next(results) for _ in one.pieces], options) for one in parted]
