"""Text to words and back, for every language by the same rule.

Words (letters, marks and digits) stay bare, so that `cat` is one entry everywhere. Every other character is a token
of its own, and carries a joiner on each side on which it touches its neighbour:

    "¿Qué, don't?"  ->  ¿￭ Qué ￭, don ￭'￭ t ￭?

Punctuation before a word has its joiner on the right (`(￭ "￭ Hi`), other punctuation on the left (`Hi ￭" ￭)`). So each
attachment is written once, and the way back is to drop the spaces beside joiners.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import regex

JOINER = "￭"
# A joiner in the text is a token that nothing else can produce: tokens are words or single characters.
ESCAPED_JOINER = "<joiner>"
_PIECES = regex.compile(r"[\p{L}\p{M}\p{N}]+|.", regex.DOTALL)
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]")
# Scripts that put no space between words. In them nothing shows where a word ends.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SPACED_WORD = regex.compile(rf"[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]", regex.VERSION1)
_CHUNKS = re.compile(r"\S+")  # parts a text where `str.split` does
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # turn the direction of the text
# A longer word is no word, or a page of a script without spaces and marks. The time that learning subwords takes grows
# as the square of a word's length: hours for one of a megabyte.
LONGEST_WORD = 1_000
_PARTS_OF_WORDS = regex.compile(rf"[\p{{L}}\p{{M}}\p{{N}}]{{{LONGEST_WORD}}}|[\p{{L}}\p{{M}}\p{{N}}]+")
NUM_CHUNKS = 200_000  # are counted before they are split: some 30 MB


def split_words(text: str) -> list[str]:
    """Text -> tokens without white space in them. White space only separates; runs of it count as one."""
    return [token for chunk in text.split() for token in _split_chunk(chunk)]


def word_spans(text: str) -> Iterator[tuple[int, int, int]]:
    """Where each token of `split_words` stands: its first character, the one after its last, and its chunk.

    Chunks are counted from 0. `text[first:end]` is the token without joiners.
    """
    for number, chunk in enumerate(_CHUNKS.finditer(text)):
        start = chunk.start()
        for piece in _PIECES.findall(chunk[0]):
            yield start, start + len(piece), number
            start += len(piece)


def cut_long_words(text: str) -> Iterator[str]:
    """The text in pieces, cut within words of more than `LONGEST_WORD` letters, marks and digits, and nowhere else."""
    begin = 0
    if max(map(len, text.split()), default=0) > LONGEST_WORD:
        for part in _PARTS_OF_WORDS.finditer(text):
            if part.end() - part.start() == LONGEST_WORD:
                yield text[begin : part.end()]
                begin = part.end()
    yield text[begin:]


def bare_words(chunk: str) -> list[str]:
    """The tokens of a chunk, without joiners."""
    return _PIECES.findall(chunk)


def count_words(chunk_counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """How often each token of `split_words` comes. Each mapping holds the counts of the chunks of some texts. A chunk
    is a stretch without white space.

    Most of a corpus is few distinct chunks, and each of them is split once.
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()

    def split_chunks() -> None:
        for chunk, count in chunks.items():
            for word in _split_chunk(chunk):
                words[word] += count
        chunks.clear()

    for counts in chunk_counts:
        chunks.update(counts)
        if len(chunks) > NUM_CHUNKS:
            split_chunks()
    split_chunks()
    return words


def join_words(tokens: list[str]) -> str:
    """The way back: `join_words(split_words(text)) == " ".join(text.split())`."""
    parts: list[str] = []
    attached = True
    for token in tokens:
        core = token.removeprefix(JOINER)
        left, right = core != token, core.endswith(JOINER)
        core = core.removesuffix(JOINER)
        if not (attached or left):
            parts.append(" ")
        parts.append(JOINER if core == ESCAPED_JOINER else core)
        attached = right
    return "".join(parts)


def has_word(token: str) -> bool:
    """Whether there is a letter, mark or digit in it."""
    return _WORD.search(token) is not None


def is_of_spaced_word(character: str) -> bool:
    """Whether a letter, mark or digit of this kind next to it would belong to the same word."""
    return _SPACED_WORD.match(character) is not None


def printable(text: str, most: int | None = None) -> str:
    """The text, or its first so many characters, without the control characters and marks of direction that a terminal
    would obey.
    """
    if most is not None and len(text) > most:
        text = f"{text[:most]}…"
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" or c in TURNING else c for c in text)


def _split_chunk(chunk: str) -> tuple[str, ...]:
    """Tokens of one stretch without white space."""
    pieces: list[str] = _PIECES.findall(chunk)
    if len(pieces) == 1:
        return (_escape(pieces[0]),)
    is_word = [_WORD.match(piece) is not None for piece in pieces]
    first_word = is_word.index(True) if True in is_word else 0
    tokens = []
    for i, piece in enumerate(pieces):
        if is_word[i]:
            tokens.append(piece)
            continue
        opening = i < first_word
        left = i > 0 and not opening
        right = opening or (i + 1 < len(pieces) and is_word[i + 1])
        tokens.append(JOINER * left + _escape(piece) + JOINER * right)
    return tuple(tokens)


def _escape(piece: str) -> str:
    return ESCAPED_JOINER if piece == JOINER else piece
