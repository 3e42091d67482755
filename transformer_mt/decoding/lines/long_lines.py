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
# The last or the first letter of a text, and the marks about it, in a script without spaces between words. Thai and the
# like have one between sentences.
_UNSPACED = r"(?:(?P<thai>[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}])|[\p{Han}\p{Hiragana}\p{Katakana}])"
_UNSPACED_END = regex.compile(_UNSPACED + r"[\p{M}\p{P}ー]*$")
_UNSPACED_START = regex.compile(r"\p{P}*+" + _UNSPACED)
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
    """The translations of the pieces as one text; see `spaces_before`."""
    return "".join(space + text for space, text in zip(spaces_before(texts, pieces), texts, strict=True))


def spaces_before(texts: Sequence[str], pieces: Sequence[Piece]) -> list[str]:
    """The white space before each translation of a piece, none before the first and before an empty one: what stands
    there in the source.

    Chinese, Japanese, Thai and the like write no space where others do. Between two pieces of such a language that had
    none there is a space, if neither translation is in one; and of another language a single space is left out, if both
    translations are in Chinese or Japanese.
    """
    spaces, left, before = [], "", ""
    for text, piece in zip(texts, pieces, strict=True):
        spaces.append(_space_between(left, text, before, piece) if left and text else "")
        left, before = text or left, piece.text
    return spaces


def _space_between(left: str, right: str, before: str, piece: Piece) -> str:
    """What stands between two translations; `before` is the text of the piece before this one."""
    space = piece.space_before
    was_unspaced = bool(_UNSPACED_END.search(before[-_LONGEST_PAUSE:]) or _UNSPACED_START.match(piece.text))
    end, start = _UNSPACED_END.search(left[-_LONGEST_PAUSE:]), _UNSPACED_START.match(right)
    if not space and was_unspaced and not end and not start:
        return " "
    if space == " " and not was_unspaced and end and start and not (end["thai"] or start["thai"]):
        return ""
    return space


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
