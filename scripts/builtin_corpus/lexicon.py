"""The words of the built-in English-Spanish corpus, read from their tables.

The Spanish is that of Spain, with "you" always singular and familiar (tú). Each English word has one translation and
one gender ("doctor" is always "el médico", "teacher" always "la maestra"), so that a sentence has one translation.
"""

from functools import cache
from typing import NamedTuple

from builtin_corpus import morphology
from builtin_corpus.noun_table import GROUPS, NOUNS
from builtin_corpus.verb_tables import ADJECTIVE, ADJECTIVE_GROUPS, DATIVE, INTRANSITIVE, PLACING, TRANSITIVE

NAMES = (
    ("Ana", "f"), ("Pedro", "m"), ("Elena", "f"), ("Carlos", "m"), ("Isabel", "f"), ("Pablo", "m"), ("Marta", "f"),
    ("Luis", "m"), ("Rosa", "f"), ("Diego", "m"), ("Carmen", "f"), ("Hugo", "m"),
)  # fmt: skip

NUMBERS = (
    ("two", "dos"), ("three", "tres"), ("four", "cuatro"), ("five", "cinco"), ("six", "seis"), ("seven", "siete"),
    ("eight", "ocho"), ("nine", "nueve"), ("ten", "diez"), ("eleven", "once"), ("twelve", "doce"),
)  # fmt: skip


class Noun(NamedTuple):
    """A noun of both languages; `gender` is "m" or "f", `stressed_a` makes the singular article "el" all the same."""

    en: str
    es: str
    en_plural: str
    es_plural: str
    gender: str
    stressed_a: bool
    kind: str
    flags: frozenset[str]


class Verb(NamedTuple):
    """A verb of both languages with the nouns that it goes with; `en` is also its lemma, particle included."""

    en: str
    past: str
    es: str
    preposition: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    places: tuple[str, ...]
    flags: frozenset[str]


class Adjective(NamedTuple):
    """An adjective with its copula: "s" (ser), "e" (estar), "-" (never predicative)."""

    en: str
    es: str
    copula: str
    nouns: frozenset[str]
    flags: frozenset[str]


def _rows(table: str) -> list[str]:
    return [line for line in table.strip().split("\n") if line]


def _read_nouns() -> dict[str, Noun]:
    nouns, kind, flags = {}, "", frozenset()
    for row in _rows(NOUNS):
        if row.startswith("["):
            kind, *rest = row.strip("[]").split()
            flags = frozenset(rest)
            continue
        en, es, gender, *irregular = row.split()
        plurals = dict(item.split(":") for item in irregular)
        nouns[en] = Noun(
            en, es, plurals.get("en") or morphology.add_s(en), plurals.get("es") or morphology.spanish_plural(es),
            gender.lower(), gender == "F", kind, flags,
        )  # fmt: skip
    return nouns


BY_ENGLISH = _read_nouns()


@cache
def nouns_of(tokens: str) -> tuple[str, ...]:
    """The nouns that a cell of a table names by groups, classes and single nouns, each once, in order."""
    found: dict[str, None] = {}
    for token in tokens.split():
        group = GROUPS.get(token) or ADJECTIVE_GROUPS.get(token)
        members = nouns_of(group) if group else tuple(n.en for n in BY_ENGLISH.values() if n.kind == token)
        if not members and token not in BY_ENGLISH:
            raise AssertionError(f"no noun, class or group is called {token!r}")
        found.update(dict.fromkeys(members or (token,)))
    return tuple(found)


def _read_verbs(table: str) -> tuple[Verb, ...]:
    verbs = []
    for row in _rows(table):
        en, es, subjects, objects, places, flags = ([cell.strip() for cell in row.split("|")] + ["", "", ""])[:6]
        base, _, past = en.partition(":")
        if not past:
            first, _, particle = base.partition(" ")
            past = f"{morphology.english_past(first)} {particle}".strip()
        infinitive, _, preposition = es.partition("+")
        verbs.append(
            Verb(
                base, past, infinitive, preposition, nouns_of(subjects), nouns_of(objects), nouns_of(places),
                frozenset(flags.split()),
            )
        )  # fmt: skip
    return tuple(verbs)


def _read_adjectives() -> tuple[Adjective, ...]:
    adjectives = []
    for row in _rows(ADJECTIVE):
        en, es, copula, *cells = row.split()
        flags = frozenset(cell for cell in cells if len(cell) == 1)
        nouns = frozenset(nouns_of(" ".join(cell for cell in cells if len(cell) > 1)))
        adjectives.append(Adjective(en, es.replace("_", " "), copula, nouns, flags))
    return tuple(adjectives)


TRANSITIVES = _read_verbs(TRANSITIVE)
INTRANSITIVES = _read_verbs(INTRANSITIVE)
DATIVES = _read_verbs(DATIVE)
PLACINGS = _read_verbs(PLACING)
ADJECTIVES = _read_adjectives()
