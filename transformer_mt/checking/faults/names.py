"""Names that a corpus has on both sides, and pairs that have others on each."""

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

import regex

Counts = dict[str, list[int]]  # of a word: pairs in which it is on both sides, and on one at least
MOST = 500_000  # words that are counted at once; beyond that those that came once are dropped
LEAST = 5  # pairs that have it on both sides
SHARE = 0.7  # of the pairs that have it at all
PREFIX = 3  # equal first letters: the same name in another form
MOST_READ = 2_000  # characters of a text
_WORD = regex.compile(r"\p{Lu}[\p{L}\p{M}]{2,}")


def _capitalised(text: str) -> set[str]:
    return set(_WORD.findall(text[:MOST_READ])) if not text.islower() else set()


def count_names(pairs: Iterable[tuple[str, str]]) -> Counts:
    """How often each capitalised word stands on both sides, and on one at least."""
    counts: Counts = {}
    for src, tgt in pairs:
        a, b = _capitalised(src), _capitalised(tgt)
        for word in a | b:
            count = counts.setdefault(word, [0, 0])
            count[0] += word in a and word in b
            count[1] += 1
    return counts


def add_counts(total: Counts, counts: Counts) -> None:
    """Add counts to others, in bounded memory."""
    for word, (both, either) in counts.items():
        count = total.setdefault(word, [0, 0])
        count[0] += both
        count[1] += either
    if len(total) > MOST:
        for word in [word for word, (_, either) in total.items() if either < 2]:
            del total[word]


def names_in(counts: Counts, least: int = LEAST) -> frozenset[str]:
    """The words that are mostly on both sides, and in `least` pairs."""
    return frozenset(word for word, (both, either) in counts.items() if both >= least and both >= SHARE * either)


def other_names(src: str, tgt: str, names: frozenset[str]) -> tuple[list[str], list[str]] | None:
    """The names that only one side has; None unless both have such."""
    a, b = _capitalised(src), _capitalised(tgt)
    only_src, only_tgt = (a - b) & names, (b - a) & names
    if not (only_src and only_tgt):
        return None
    only_src = sorted(name for name in only_src if not _is_in(name, tgt))
    only_tgt = sorted(name for name in only_tgt if not _is_in(name, src))
    return (only_src, only_tgt) if only_src and only_tgt else None


def _is_in(name: str, text: str) -> bool:
    start = plain(name)[:PREFIX]
    return any(plain(word).startswith(start) for word in _words(text))


def _words(text: str) -> Iterator[str]:
    return (found[0] for found in regex.finditer(r"[\p{L}\p{M}]+", text[:MOST_READ]))


@lru_cache(2**14)
def plain(word: str) -> str:
    """In lower case and without accents."""
    return "".join(c for c in unicodedata.normalize("NFD", word.casefold()) if not unicodedata.combining(c))
