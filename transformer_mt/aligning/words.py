"""The words that are aligned: where they stand in a line, and their numbers in a vocabulary.

A line is split as the project's word tokenizer splits it, without joiners. In the vocabulary a word is in lower case
and in NFC.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from transformer_mt.data.word_splitting import bare_words, word_spans

MAX_CHUNKS = 500_000  # whose words are remembered: some 100 MB


class Word(NamedTuple):
    """A word of a line: `line[start:end] == text`. `chunk` is the number of its white-space word, from 0."""

    text: str
    start: int
    end: int
    chunk: int


def words_of(line: str) -> list[Word]:
    """The words of a line, in order; none for a blank one."""
    return [Word(line[start:end], start, end, chunk) for start, end, chunk in word_spans(line)]


def normal_form(word: str) -> str:
    """The form under which a vocabulary knows a word."""
    return unicodedata.normalize("NFC", word).lower()


class Vocabulary:
    """Numbers of words in their normal form, from 0."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        self._ids_of_chunk: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.words)

    def add_line(self, line: str) -> list[int]:
        """The numbers of a line's words. New words get the next numbers."""
        if len(self._ids_of_chunk) > MAX_CHUNKS:
            self._ids_of_chunk.clear()
        ids = []
        for chunk in line.split():
            found = self._ids_of_chunk.get(chunk)
            if found is None:
                found = self._ids_of_chunk[chunk] = [self._add(normal_form(word)) for word in bare_words(chunk)]
            ids += found
        return ids

    def find(self, forms: Sequence[str]) -> list[int]:
        """The numbers of words in their normal form, -1 for those that are not known."""
        return [self._ids.get(form, -1) for form in forms]

    def _add(self, form: str) -> int:
        number = self._ids.setdefault(form, len(self.words))
        if number == len(self.words):
            self.words.append(form)
        return number
