"""What becomes of a sentence longer than the model's positions; cutting it, and putting its translation together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from transformer_mt.data.words import has_word


class TooLong(StrEnum):
    """Nothing is translated, the beginning, or all of it in pieces."""

    BLANK = "blank"
    TRUNCATE = "truncate"
    SPLIT = "split"


@dataclass(frozen=True)
class Piece:
    """Part of a sentence, and whether white space stood between it and the piece before."""

    text: str
    after_space: bool


def split_text(text: str, num_tokens: Callable[[list[str]], list[int]], limit: int) -> list[Piece]:
    """Pieces of at most `limit` tokens, in order: as few cuts as possible, where a reader would pause.

    A cut is made at white space, after punctuation where some stands in the second half of a piece. A stretch without
    white space that is longer than a piece (a sentence in Chinese) is halved, near punctuation if there is any, until
    it fits; only a single character may be left that does not. `num_tokens` counts the tokens of several texts.
    """
    chunks = text.split()
    pieces: list[Piece] = []
    packed: list[tuple[str, int]] = []  # the chunks of the piece in the making, with their counts
    for chunk, count in zip(chunks, num_tokens(chunks), strict=True):
        while packed and sum(n for _, n in packed) + count > limit:
            end = _last_pause(packed, limit)
            pieces.append(_join(packed[:end]))
            packed = packed[end:]
        if count > limit:
            halves = _halve(chunk, num_tokens, limit)
            pieces += [Piece(half, after_space=i == 0) for i, half in enumerate(halves)]
        else:
            packed.append((chunk, count))
    if packed:
        pieces.append(_join(packed))
    return pieces


def join_texts(texts: Sequence[str], pieces: Sequence[Piece]) -> str:
    """The translations of the pieces as one line, with white space where the pieces had it between them."""
    joined = ""
    for text, piece in zip(texts, pieces, strict=True):
        joined += " " * (piece.after_space and bool(joined) and bool(text)) + text
    return joined


def _join(packed: list[tuple[str, int]]) -> Piece:
    return Piece(" ".join(chunk for chunk, _ in packed), after_space=True)


def _last_pause(packed: list[tuple[str, int]], limit: int) -> int:
    """How many chunks make the next piece: up to the last that ends in punctuation, unless that is a short piece."""
    total = sum(count for _, count in packed)
    for end in range(len(packed), 0, -1):
        if 2 * total < limit:
            break
        if not has_word(packed[end - 1][0][-1]):
            return end
        total -= packed[end - 1][1]
    return len(packed)


def _halve(chunk: str, num_tokens: Callable[[list[str]], list[int]], limit: int) -> list[str]:
    if len(chunk) == 1 or num_tokens([chunk])[0] <= limit:
        return [chunk]
    middle = len(chunk) // 2
    quarter = len(chunk) // 4
    pauses = [i for i in range(middle - quarter + 1, middle + quarter + 1) if not has_word(chunk[i - 1])]
    cut = min(pauses, key=lambda i: abs(i - middle), default=middle)
    return _halve(chunk[:cut], num_tokens, limit) + _halve(chunk[cut:], num_tokens, limit)
