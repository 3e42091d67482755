"""A translation beside its reference: which of its words are not in the reference, and which it misses."""

from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from transformer_mt.judging.words import tokens_of

MOST_TOKENS = 2000  # of longer texts no differences are marked, because finding them takes the square of the time


class Piece(NamedTuple):
    """A stretch of a text, white space included, and whether the other text lacks it."""

    text: str
    is_marked: bool


def marked_pair(text: str, reference: str) -> tuple[list[Piece], list[Piece]]:
    """The pieces of a translation, with what the reference lacks marked, and those of the reference, with what the
    translation lacks. Words that are equal but for upper and lower case differ.
    """
    spans = tokens_of(text), tokens_of(reference)
    if max(map(len, spans)) > MOST_TOKENS:
        return [Piece(text, False)], [Piece(reference, False)]
    tokens = [[of[start:end] for start, end in some] for of, some in zip((text, reference), spans, strict=True)]
    marks = [True] * len(tokens[0]), [True] * len(tokens[1])
    for start, other, size in SequenceMatcher(None, *tokens, autojunk=False).get_matching_blocks():
        marks[0][start : start + size] = marks[1][other : other + size] = [False] * size
    return _pieces(text, spans[0], marks[0]), _pieces(reference, spans[1], marks[1])


def missed_by(texts: list[str], reference: str) -> list[tuple[str, tuple[int, ...]]]:
    """The stretches of a reference, each with the numbers of the translations that lack it."""
    each = [marked_pair(text, reference)[1] for text in texts]
    marks = [[piece.is_marked for piece in pieces for _ in piece.text] for pieces in each]
    lacking = [tuple(number for number, is_marked in enumerate(some) if is_marked) for some in zip(*marks, strict=True)]
    found = []
    for numbers, letters in groupby(zip(reference, lacking, strict=True), key=lambda pair: pair[1]):
        found.append(("".join(letter for letter, _ in letters), numbers))
    return found


def _pieces(text: str, spans: list[tuple[int, int]], marks: list[bool]) -> list[Piece]:
    """The text in pieces that are marked or not; white space between two marked tokens is marked, too."""
    pieces: list[Piece] = []
    end_before, was_marked = 0, False
    for (start, end), is_marked in zip(spans, marks, strict=True):
        gap = text[end_before:start]
        pieces += [Piece(gap, is_marked and was_marked), Piece(text[start:end], is_marked)]
        end_before, was_marked = end, is_marked
    pieces.append(Piece(text[end_before:], False))
    alike = groupby((piece for piece in pieces if piece.text), key=lambda piece: piece.is_marked)
    return [Piece("".join(piece.text for piece in group), is_marked) for is_marked, group in alike]
