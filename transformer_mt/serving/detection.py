"""The language of a text, among a few that are known by their words: naive Bayes over words and their letters."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from transformer_mt.aligning.words import normal_form, words_of
from transformer_mt.data.word_splitting import has_word

ORDER = 3  # letters that are counted together
MOST_WORDS = 200  # of a text: more make no language likelier
KNOWN = 0.5  # the share of words of a text that are expected to be in a language's list
SMOOTHING = 0.1  # added to every count of letters
_EDGE = "\x00"


class _Language:
    """What is known of one language: its words, and how often letters follow each other in them."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = {word for word in words if has_word(word)}
        padded = [_padded(word) for word in self.words]
        self._following = Counter(gram for word in padded for gram in _grams(word))
        self._before = Counter(gram[:-1] for word in padded for gram in _grams(word))

    def log_probability(self, word: str, num_letters: int) -> float:
        """Of a word, as an entry of the list or spelt letter by letter, of so many different letters."""
        spelt = 0.0
        for gram in _grams(_padded(word)):
            chance = (self._following[gram] + SMOOTHING) / (self._before[gram[:-1]] + SMOOTHING * num_letters)
            spelt += math.log(chance)
        listed = KNOWN / len(self.words) if word in self.words else 0.0
        return math.log(listed + (1 - KNOWN) * math.exp(spelt)) if listed or spelt > -700 else spelt

    @property
    def letters(self) -> set[str]:
        return {gram[-1] for gram in self._following}


class Detector:
    """Tells languages apart by lists of their words, in lower case: those of an aligner's vocabularies will do."""

    def __init__(self, words: Mapping[str, Iterable[str]]) -> None:
        self._languages = {code: _Language(listed) for code, listed in words.items()}
        self._languages = {code: language for code, language in self._languages.items() if language.words}
        self._num_letters = len(set().union(*(one.letters for one in self._languages.values()))) + 1

    def detect(self, text: str, among: Iterable[str] | None = None) -> list[tuple[str, float]]:
        """The languages, the likeliest first, with probabilities that add up to 1. A text without a word tells
        nothing, and all are as likely.

        `among` are the codes to choose from; by default all that are known.
        """
        codes = [code for code in (self._languages if among is None else among) if code in self._languages]
        words = [normal_form(word.text) for word in words_of(text[: 20 * MOST_WORDS]) if has_word(word.text)][
            :MOST_WORDS
        ]
        scores = [
            sum(self._languages[code].log_probability(word, self._num_letters) for word in words) for code in codes
        ]
        best = max(scores, default=0.0)
        shares = [math.exp(score - best) for score in scores]
        found = [(code, share / sum(shares)) for code, share in zip(codes, shares, strict=True)]
        return sorted(found, key=lambda one: -one[1])


def _padded(word: str) -> str:
    return _EDGE * (ORDER - 1) + word + _EDGE


def _grams(padded: str) -> Iterable[str]:
    return (padded[i : i + ORDER] for i in range(len(padded) - ORDER + 1))
