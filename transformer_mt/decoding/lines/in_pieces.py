"""Lines longer than the model's positions, translated in pieces that are searched together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.long_lines import Piece, TooLong, join_texts, split_text
from transformer_mt.decoding.lines.target_language import Tagged
from transformer_mt.decoding.phrase_lists import PhraseLists
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated, in_order, side_by_side


@dataclass(frozen=True)
class InPieces:
    """`translate` searches the pieces, each of less than `max_len` tokens."""

    translate: Callable[[list[SourceLine], SearchOptions], list[Translated]]
    tokenizer: Tokenizer
    max_len: int
    phrase_lists: PhraseLists

    def translated(
        self,
        blanks: Mapping[int, Translated],
        lines: Sequence[SourceLine],
        tagged: Sequence[Tagged],
        options: SearchOptions,
    ) -> Iterator[tuple[int, Translated]]:
        """The lines at the places of `blanks`, each result with its place: the pieces' first hypotheses side by side,
        then their second, and so on; scored as one hypothesis. What the first piece becomes begins with the line's
        prefix. Each piece has the line's tag.
        """
        cut: dict[int, list[Piece]] = {}
        begun: list[SourceLine] = []
        for i, blank in blanks.items():
            line, tag = lines[i], tagged[i].tag
            if problem := _why_whole(line):
                yield i, replace(blank, problem=problem)
                continue
            cut[i] = split_text(tagged[i].text, self._num_tokens, self.max_len - 1 - (len(tag) > 0))
            for number, piece in enumerate(cut[i]):
                prefix = "" if number else line.prefix
                begun.append(SourceLine(Tagged(tag, piece.text).whole, prefix, place=(*line.place, number)))
        # Only a single character of more tokens than there are positions can still be too long.
        whole = options.model_copy(update={"too_long": TooLong.TRUNCATE})
        results = iter(self.translate(begun, whole))
        for i, pieces in cut.items():
            yield i, self._joined(blanks[i], pieces, list(islice(results, len(pieces))), options)

    def _num_tokens(self, texts: list[str]) -> list[int]:
        return [len(row) for row in self.tokenizer.encode_batch(texts)]

    def _joined(
        self, blank: Translated, pieces: list[Piece], results: list[Translated], options: SearchOptions
    ) -> Translated:
        if problem := next((result.problem for result in results if result.problem), ""):
            return replace(blank, problem=problem)
        ranks = zip(*(result.hypotheses for result in results), strict=False)
        joined = [side_by_side(join_texts([h.text for h in of], pieces), of, options) for of in ranks]
        found, problem = self.phrase_lists.without_avoided(joined, options.avoid, "where its pieces meet")
        return replace(blank, hypotheses=in_order(found, options), problem=problem)


def _why_whole(line: SourceLine) -> str:
    """Why a line cannot be cut; nothing where it can."""
    if line.patches is not None:
        return "a picture cannot be cut where a sentence ends"
    if line.constraints:
        return "it would be translated in pieces, and has constraints, which belong to the whole line"
    return ""
