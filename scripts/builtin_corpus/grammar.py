"""Bilingual pieces of a sentence in the built-in English-Spanish corpus, and the dice that choose them."""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Dice:
    """Random choices by integer arithmetic only (splitmix64), so that they never change with Python's library."""

    def __init__(self, seed: int):
        self.state = seed

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1."""
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return (z ^ (z >> 31)) % bound

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each as likely."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases."""
        return self.below(100) < percent

    def weighted(self, options: Sequence[tuple[T, int]]) -> T:
        """One of the options, as likely as its weight."""
        ticket = self.below(sum(weight for _, weight in options))
        for option, weight in options:
            ticket -= weight
            if ticket < 0:
                return option
        raise AssertionError("weights sum to more than the ticket")


class Piece(NamedTuple):
    """Some words in both languages, the lemmas in them, and which noun is subject or object of which verb."""

    en: str = ""
    es: str = ""
    nouns: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()


NOTHING = Piece()


def join(*parts: Piece | tuple[str, str]) -> Piece:
    """The parts side by side in both languages."""
    pieces = [part for part in parts if len(part) > 2]
    return Piece(
        " ".join([part[0] for part in parts if part[0]]),
        " ".join([part[1] for part in parts if part[1]]),
        tuple([noun for piece in pieces for noun in piece[2]]),
        tuple([verb for piece in pieces for verb in piece[3]]),
        tuple([pair for piece in pieces for pair in piece[4]]),
    )


def finish(piece: Piece, end: str = ".") -> Piece:
    """The whole sentence: articles, contractions, capital letters, and the mark at its end."""
    en = re.sub(r"\ba (?=(?!uni|use)[aeiou]|honest)", "an ", piece.en).replace(" ,", ",").replace(" 's", "'s")
    es = re.sub(r"\b(a|de) el\b", lambda match: "al" if match[1] == "a" else "del", piece.es).replace(" ,", ",")
    es = re.sub(r"\by (?=h?i(?!e))", "e ", es, flags=re.IGNORECASE)
    es = es[0].upper() + es[1:]
    return piece._replace(en=en[0].upper() + en[1:] + end, es={"?": "¿", "!": "¡"}.get(end, "") + es + end)
