"""Small changes of a source of which it is known what they do to its translation; in any language."""

import unicodedata
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import regex

from transformer_mt.checking.faults.names import count_names, names_in, plain
from transformer_mt.checking.faults.pair_texts import numbers_of
from transformer_mt.data.word_splitting import UNSPACED

LEAST = 2  # pairs that have a name on both sides
LEAST_NUMBER = 2  # 0 and 1 change the words around them: one dog, two dogs
MOST_DIGITS, MOST_TRIES = 9, 100
STOPS = ".。．。।۔։።"
_LETTER = rf"[\p{{L}}--[{UNSPACED}]]"
# A number by itself: no part of a word, a date, a time or a fraction.
_NUMBER = regex.compile(
    rf"(?<![\p{{N}}:/\-.,'’]|{_LETTER})\p{{Nd}}+(?:[.,'’]\p{{Nd}}+)*(?![\p{{N}}:/\-]|{_LETTER})", regex.VERSION1
)
_WORDS = regex.compile(r"[\p{L}\p{M}]+")


class Replaced(NamedTuple):
    """A text with something in the place of something else."""

    text: str
    old: str
    new: str


def value_of(number: str) -> int:
    """The digits of a number, of any script, as one number."""
    return int("".join(filter(str.isdecimal, number)))


def other_number(text: str, reference: str | None, random: Random) -> Replaced | None:
    """The text with another number of as many digits in the place of one that its reference has in digits, too."""
    all_of = numbers_of(text)
    found = [
        match
        for match in _NUMBER.finditer(text)
        if len(match[0]) <= MOST_DIGITS
        and value_of(match[0]) >= LEAST_NUMBER
        and (reference is None or value_of(match[0]) in numbers_of(reference))
        and sum(value_of(other[0]) == value_of(match[0]) for other in regex.finditer(r"\p{Nd}+", text)) <= 1
    ]
    if not found:
        return None
    match = random.choice(found)
    for _ in range(MOST_TRIES):
        new = _other_digits(match[0], random)
        if value_of(new) >= LEAST_NUMBER and value_of(new) not in {*all_of, value_of(match[0])}:
            return Replaced(text[: match.start()] + new + text[match.end() :], match[0], new)
    return None  # a text may have every number of so many digits


def _other_digits(number: str, random: Random) -> str:
    """Digits of the same script, the first no zero, and the marks between them as they are."""
    digits = []
    for place, character in enumerate(number):
        is_digit = character.isdecimal()
        digits.append(
            chr(ord(character) - unicodedata.decimal(character) + random.randint(not place, 9))
            if is_digit
            else character
        )
    return "".join(digits)


def names_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The names that replace one another: words that are mostly on both sides of a pair, always with a capital, and
    not only at the beginning of a source.
    """
    small = {word for pair in pairs for text in pair for word in _WORDS.findall(text) if word.islower()}
    within = {word for src, _ in pairs for word in _WORDS.findall(src)[1:]}
    names = names_in(count_names(pairs), LEAST)
    return sorted(name for name in names if name in within and name.lower() not in small)


def other_name(text: str, reference: str, names: list[str], random: Random) -> Replaced | None:
    """The text with another name in the place of one that its reference has, too."""
    words = _WORDS.findall(text)
    found = sorted({word for word in words if word in names and words.count(word) == 1 and has_name(reference, word)})
    if not found:
        return None
    old = random.choice(found)
    others = [name for name in names if not has_name(text, name) and not has_name(name, old)]
    if not others:
        return None
    new = random.choice(others)
    return Replaced(regex.sub(rf"(?<![\p{{L}}\p{{M}}]){old}(?![\p{{L}}\p{{M}}])", new, text), old, new)


def has_name(text: str, name: str) -> bool:
    """Whether a name stands in a text, its last letter and accents apart: languages inflect names."""
    start = plain(name)
    start = start[: max(3, len(start) - 1)]
    return any(plain(word).startswith(start) for word in _WORDS.findall(text))


def without_stop(text: str) -> str | None:
    """The text without the full stop that ends it; None where it has none, or an ellipsis."""
    bare = text.rstrip()
    if not bare.endswith(tuple(STOPS)) or bare[:-1].rstrip().endswith((*STOPS, "…")):
        return None
    return bare[:-1].rstrip() or None


def bare_end(text: str) -> str:
    """The text without any full stops at its end."""
    return text.rstrip(STOPS + " \u00a0\t")


def with_double_space(text: str, random: Random) -> str | None:
    """The text with two spaces in the place of one."""
    places = [match.start() for match in regex.finditer(r"(?<=\S) (?=\S)", text)]
    if not places:
        return None
    place = random.choice(places)
    return f"{text[:place]}  {text[place + 1 :]}"
