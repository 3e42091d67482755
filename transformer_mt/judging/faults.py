"""Faults that a program can see: copies, empty translations, repetitions, and translations too short or too long."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_mt.judging.scored_set import ScoredSet
from transformer_mt.judging.words import words_of

LONGEST_LOOP = 4  # words that come again right after themselves
NGRAM = 3  # words that come again anywhere
LEAST_WORDS = 3  # a translation that is too short or too long differs by so many words at least


@dataclass(frozen=True)
class Sentence:
    """A translation, with the source if there is one, and all its references."""

    text: str
    source: str | None
    references: Sequence[str]


def is_empty(sentence: Sentence) -> bool:
    """Nothing stands where every reference has something."""
    return not sentence.text.strip() and all(reference.strip() for reference in sentence.references)


def is_copy(sentence: Sentence) -> bool:
    """The words are those of the source, and those of no reference; upper and lower case are the same here."""
    if sentence.source is None or not (words := _folded(sentence.text)):
        return False
    return words == _folded(sentence.source) and all(words != _folded(one) for one in sentence.references)


def repeats(sentence: Sentence) -> bool:
    """Up to `LONGEST_LOOP` words stand twice in a row, or `NGRAM` words come twice, more often than in any reference,
    and than in the source, which may repeat words for good reason.
    """
    others = [*sentence.references, *([sentence.source] if sentence.source else [])]
    for count in (_loops, _repeated_ngrams):
        own = count(_folded(sentence.text))
        if own and own > max(count(_folded(other)) for other in others):
            return True
    return False


def is_too_short(sentence: Sentence) -> bool:
    """Fewer than half the words of every reference, and at least `LEAST_WORDS` fewer; empty ones are counted apart."""
    number = len(words_of(sentence.text))
    lengths = [len(words_of(reference)) for reference in sentence.references]
    return bool(sentence.text.strip()) and all(2 * number < one and number + LEAST_WORDS <= one for one in lengths)


def is_too_long(sentence: Sentence) -> bool:
    """More than twice the words of every reference, and at least `LEAST_WORDS` more."""
    number = len(words_of(sentence.text))
    lengths = [len(words_of(reference)) for reference in sentence.references]
    return all(number > 2 * one and number >= one + LEAST_WORDS for one in lengths)


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in words_of(text)]


def _loops(words: list[str]) -> int:
    """In how many places some words stand that stood right before."""
    return sum(
        words[start : start + size] == words[start + size : start + 2 * size]
        for size in range(1, LONGEST_LOOP + 1)
        for start in range(len(words) - 2 * size + 1)
    )


def _repeated_ngrams(words: list[str]) -> int:
    """How many n-grams stand in the words beyond the first of each kind."""
    counts = Counter(tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1))
    return sum(counts.values()) - len(counts)


FAULTS: dict[str, tuple[Callable[[Sentence], bool], str]] = {
    "empty": (is_empty, "Nothing was translated."),
    "copied": (is_copy, "The words are those of the source, and no reference has them."),
    "repeated": (
        repeats,
        f"Up to {LONGEST_LOOP} words stand twice in a row, or {NGRAM} words come twice, and neither source nor "
        "reference repeats as much.",
    ),
    "too short": (is_too_short, f"Fewer than half the words of every reference, by {LEAST_WORDS} words or more."),
    "too long": (is_too_long, f"More than twice the words of every reference, by {LEAST_WORDS} words or more."),
}


def faults_of(test_set: ScoredSet) -> dict[str, list[list[int]]]:
    """For each fault and each system: the places of the sentences that have it."""
    found: dict[str, list[list[int]]] = {name: [] for name in FAULTS}
    sources = test_set.sources or [None] * len(test_set)
    for output in test_set.outputs:
        rows = zip(output.texts, sources, zip(*test_set.references, strict=True), strict=True)
        sentences = [Sentence(*row) for row in rows]
        for name, (has_it, _) in FAULTS.items():
            found[name].append([place for place, sentence in enumerate(sentences) if has_it(sentence)])
    return found
