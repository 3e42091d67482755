"""Sentences longer than the model's positions: leaving them out, cutting them, and joining their translations."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import regex

from transformer_mt.decoding.lines.sentences import split_sentences


class TooLong(StrEnum):
    """What is translated of such a sentence: nothing, the beginning, or all of it in pieces."""

    BLANK = "blank"
    TRUNCATE = "truncate"
    SPLIT = "split"


@dataclass(frozen=True)
class Piece:
    """Part of a text, and the white space between it and the piece before; none before the first."""

    text: str
    space_before: str


@dataclass(frozen=True)
class _Chunk:
    """A stretch of the text without white space, and the number of its tokens."""

    start: int
    end: int
    num_tokens: int


_CHUNK = re.compile(r"\S+")  # parts a text where `str.split` does, which `regex` does not

_CLAUSE_END = r"[\p{Terminal_Punctuation}\p{Pd}…⋯][\"'\p{Pe}\p{Pf}]*+"
_PAUSE, _LAST_PAUSE = regex.compile(_CLAUSE_END), regex.compile(_CLAUSE_END + "$")
_LONGEST_PAUSE = 8  # a mark and the quotes and brackets behind it
_CHARACTER = regex.compile(r"\X")  # as a reader sees it: a letter with its marks


def split_text(text: str, num_tokens: Callable[[list[str]], list[int]], limit: int) -> list[Piece]:
    """Pieces of at most `limit` tokens, in order: a sentence each, because most models have learned from such.

    A longer sentence is cut as seldom as possible. A cut is made at white space, after a clause mark if the second half
    of a piece has one. A stretch without white space that is longer than a piece (a clause in Chinese) is halved until
    it fits, after a clause mark if there is one near its middle. Only a single character may remain that does not fit.

    The pieces with the white space between them are the text but for the white space at its ends. `num_tokens` counts
    the tokens of several texts.
    """
    sentences = split_sentences(text)
    places = [
        [(start + m.start(), start + m.end()) for m in _CHUNK.finditer(text[start:end])] for start, end in sentences
    ]
    counts = iter(num_tokens([text[start:end] for chunks in places for start, end in chunks]))
    spans: list[tuple[int, int]] = []
    for chunks in places:
        spans += _pack(text, [_Chunk(*chunk, next(counts)) for chunk in chunks], num_tokens, limit)
    before = [start for start, _ in spans[:1]] + [end for _, end in spans]
    return [Piece(text[start:end], text[last:start]) for last, (start, end) in zip(before, spans, strict=False)]


def join_texts(texts: Sequence[str], pieces: Sequence[Piece]) -> str:
    """The translations of the pieces as one text, with the white space that the pieces had between them."""
    joined = ""
    for text, piece in zip(texts, pieces, strict=True):
        joined += piece.space_before * (bool(joined) and bool(text)) + text
    return joined


def _pack(
    text: str, chunks: list[_Chunk], num_tokens: Callable[[list[str]], list[int]], limit: int
) -> Iterator[tuple[int, int]]:
    """Where the pieces of one sentence begin and end."""
    packed: list[_Chunk] = []  # the chunks of the piece in the making
    size = 0
    for chunk in chunks:
        while packed and size + chunk.num_tokens > limit:
            end = _last_pause(text, packed, limit)
            yield packed[0].start, packed[end - 1].end
            packed = packed[end:]
            size = sum(chunk.num_tokens for chunk in packed)
        if chunk.num_tokens > limit:
            start = chunk.start
            for part in _halve(text[chunk.start : chunk.end], num_tokens, limit):
                yield start, start + len(part)
                start += len(part)
        else:
            packed.append(chunk)
            size += chunk.num_tokens
    if packed:
        yield packed[0].start, packed[-1].end


def _last_pause(text: str, packed: list[_Chunk], limit: int) -> int:
    """How many chunks make the next piece: up to the last that ends in a clause mark, or all if that piece is short."""
    total = sum(chunk.num_tokens for chunk in packed)
    for end in range(len(packed), 0, -1):
        chunk = packed[end - 1]
        if 2 * total < limit:
            break
        if _LAST_PAUSE.search(text[max(chunk.start, chunk.end - _LONGEST_PAUSE) : chunk.end]):
            return end
        total -= chunk.num_tokens
    return len(packed)


def _halve(chunk: str, num_tokens: Callable[[list[str]], list[int]], limit: int) -> list[str]:
    if len(chunk) == 1 or num_tokens([chunk])[0] <= limit:
        return [chunk]
    middle, quarter = len(chunk) // 2, len(chunk) // 4
    pauses = [m.end() for m in _PAUSE.finditer(chunk) if abs(m.end() - middle) <= quarter and m.end() < len(chunk)]
    characters = pauses or [m.start() for m in _CHARACTER.finditer(chunk) if m.start() > 0]
    cut = min(characters, key=lambda i: abs(i - middle), default=middle)
    return _halve(chunk[:cut], num_tokens, limit) + _halve(chunk[cut:], num_tokens, limit)
