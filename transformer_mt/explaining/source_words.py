"""The words of a source, the tokens that write each, and the source without some of them."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.data.word_splitting import has_word
from transformer_mt.decoding.evidence import word_shares, words_with_spans


@dataclass(frozen=True)
class SourceWords:
    """The words of `text`, which is normalized: `text[start:end]` of each span. In a script without spaces a character
    is a word; punctuation is one, too. `shares` (tokens, words) says which words each token writes, rows summing to 1.
    """

    text: str
    spans: list[tuple[int, int]]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer) -> "SourceWords":
        """Of a text that has tokens."""
        text = normalize(text, tokenizer.lowercase)
        spans: list[tuple[int, int]] = []
        start = 0
        for chunk in text.split():
            own = [(0, len(chunk))] if chunk in tokenizer.tags else words_with_spans(chunk)
            spans += [(start + first, start + last) for first, last in own]
            start += len(chunk) + 1
        return cls(text, spans, word_shares(text, spans, tokenizer))

    @property
    def words(self) -> list[str]:
        """The words as text."""
        return [self.text[start:end] for start, end in self.spans]

    def sums(self, of_tokens: NDArray[np.float64]) -> list[float]:
        """What tokens have, EOS left out, as the sums over each word."""
        return (of_tokens[: len(self.shares)] @ self.shares).tolist()

    def without(self, words: Collection[int]) -> str:
        """The text without some of the words; nothing where none is left. Of a word between a space and punctuation the
        space goes, too: "two nine." becomes "two.".
        """
        text = self.text
        for word in sorted(words, reverse=True):
            start, end = self.spans[word]
            before, after = text[:start], text[end:]
            if has_word(text[start:end]) and before and after:
                if before[-1] == " " and after[0] != " " and not has_word(after[0]):
                    before = before[:-1]
                elif after[0] == " " and before[-1] != " " and not has_word(before[-1]):
                    after = after[1:]
            text = before + after
        return " ".join(text.split())
