"""What the model says of each word of a translation that it made: the log-probabilities of the word's tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import regex
from numpy.typing import NDArray

from transformer_mt.config.special_ids import SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.word_splitting import UNSPACED, word_spans
from transformer_mt.decoding.scoring import IdPair, token_log_probs
from transformer_mt.model.interface import TranslationModel

UNK = SPECIAL_TOKENS[UNK_ID]
# The last part is every other character but white space, of which `regex` knows four less than `str.split`.
_WORDS = regex.compile(rf"{regex.escape(UNK)}|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+|[^\s\x1c-\x1f]", regex.VERSION1)


@dataclass(frozen=True)
class Evidence:
    """The words of a text and the log-probabilities of the tokens that write each, at least one. A token that writes
    parts of two words counts for both. `end` is the log-probability of EOS; `num_source` counts the source's tokens.
    """

    words: tuple[str, ...]
    log_probs: tuple[tuple[float, ...], ...]
    end: float
    num_tokens: int
    num_source: int


def words_with_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each word stands: letters and digits together, every other character alone. In a script that puts no
    spaces between words, a character is a word. The sign of UNK is one.
    """
    return (found.span() for found in _WORDS.finditer(text))


def words_of_text(text: str) -> list[str]:
    """The words of a text, see `words_with_spans`."""
    return [text[start:end] for start, end in words_with_spans(text)]


def find_evidence(
    model: TranslationModel, pairs: Sequence[IdPair], texts: Sequence[str], tokenizer: Tokenizer
) -> list[Evidence]:
    """The evidence for each text, which the target ids of its pair write. The pairs are one batch: one more pass of the
    model over tokens that it has found.
    """
    found = token_log_probs(model, list(pairs)) if pairs else []
    return [
        _evidence(text, tgt, log_probs, len(src), tokenizer)
        for (src, tgt), text, log_probs in zip(pairs, texts, found, strict=True)
    ]


def _evidence(text: str, tgt: list[int], log_probs: list[float], num_source: int, tokenizer: Tokenizer) -> Evidence:
    places = token_places(tgt, text, tokenizer)
    words, of_words = [], []
    for start, end in words_with_spans(text):
        words.append(text[start:end])
        own = [
            log_prob for (first, last), log_prob in zip(places, log_probs, strict=False) if first < end and last > start
        ]
        of_words.append(tuple(own))
    return Evidence(tuple(words), tuple(of_words), log_probs[-1], len(tgt), num_source)


def token_places(ids: list[int], text: str, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """The stretch of the text, one character at least, that each token writes. Together they hold all but white space.

    A token that writes a part of a character has that character; one that writes white space alone has the character
    after it, or the last one.
    """
    places, end = [], 0
    for number in range(1, len(ids) + 1):
        start = end
        end = len(text) if number == len(ids) else max(start, _num_alike(tokenizer.decode(ids[:number]), text))
        while start < len(text) and text[start].isspace():
            start += 1
        start = max(0, min(start, len(text) - 1))
        places.append((start, max(end, start + 1)))
    return places


def word_shares(text: str, words: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> NDArray[np.float64]:
    """Which of the words, `text[start:end]` each, every token of a normalized text writes (tokens, words): shares that
    add up to 1.
    """
    places, start = [], 0
    chunks = text.split()
    for chunk, ids in zip(chunks, tokenizer.encode_batch(chunks), strict=True):
        places += [(start + first, start + last) for first, last in _places_in_chunk(ids, chunk, tokenizer)]
        start += len(chunk) + 1
    (first, last), (begin, end) = np.array(places).T, np.array(words).T
    shares = ((first[:, None] < end) & (begin < last[:, None])).astype(np.float64)
    return shares / shares.sum(axis=1, keepdims=True)


def _places_in_chunk(ids: list[int], chunk: str, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    if chunk in tokenizer.tags:  # one token, whatever signs it has
        return [(0, len(chunk))]
    if tokenizer.knows_every_text:
        return token_places(ids, chunk, tokenizer)
    return [(first, last) for first, last, _ in word_spans(chunk)]  # UNK stands for one of them, and has no text


def _num_alike(one: str, other: str) -> int:
    """With how many characters both begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
