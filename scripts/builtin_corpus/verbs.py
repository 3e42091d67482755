"""Clauses of the built-in English-Spanish corpus: tenses, negation, questions, word order."""

from functools import cache
from typing import NamedTuple

from builtin_corpus import morphology
from builtin_corpus.grammar import NOTHING, Piece, join
from builtin_corpus.lexicon import Verb
from builtin_corpus.morphology import HE
from builtin_corpus.nouns import NounPhrase

REFLEXIVES = ("me", "te", "se", "nos", "se")
# tense: the English auxiliary and Spanish verb before an infinitive
MODALS = {"can": "poder", "must": "deber", "want": "querer", "going": "ir"}


@cache
def english_parts(verb: Verb, tense: str, person: int) -> tuple[str, str, str]:
    """The auxiliary for questions and negations, what follows it, and the affirmative form of both."""
    first, _, particle = verb.en.partition(" ")
    ing = f"{morphology.english_ing(first)} {particle}".strip()
    third = f"{morphology.english_third(first)} {particle}".strip()
    does = "does" if person == HE else "do"
    now = morphology.BE_PRESENT[person]
    then = morphology.BE_PAST[person]
    return {
        "present": (does, verb.en, third if person == HE else verb.en),
        "past": ("did", verb.en, verb.past),
        "future": ("will", verb.en, f"will {verb.en}"),
        "prog": (now, ing, f"{now} {ing}"),
        "pastprog": (then, ing, f"{then} {ing}"),
        "can": ("can", verb.en, f"can {verb.en}"),
        "must": ("must", verb.en, f"must {verb.en}"),
        "want": (does, f"want to {verb.en}", f"{'wants' if person == HE else 'want'} to {verb.en}"),
        "going": (now, f"going to {verb.en}", f"{now} going to {verb.en}"),
    }[tense]


@cache
def spanish_verb(verb: Verb, tense: str, person: int, clitic: str = "") -> str:
    """The verb with its pronouns: se sentó, la está comiendo, se quiere sentar."""
    infinitive = verb.es
    if morphology.reflexive(infinitive):
        infinitive, clitic = infinitive[:-2], REFLEXIVES[person]
    if tense in MODALS:
        helper = morphology.conjugate(MODALS[tense], "present")[person]
        return f"{clitic} {helper} {'a ' if tense == 'going' else ''}{infinitive}".strip()
    if tense in ("prog", "pastprog"):
        helper = morphology.conjugate("estar", "present" if tense == "prog" else "imperfect")[person]
        return f"{clitic} {helper} {morphology.gerund(infinitive)}".strip()
    if tense == "past" and "state" in verb.flags:
        tense = "imperfect"
    return f"{clitic} {morphology.conjugate(infinitive, tense)[person]}".strip()


def english_statement(verb: Verb, tense: str, person: int, negated: bool) -> str:
    """The English verb of a statement: sits, does not sit, cannot sit."""
    auxiliary, main, affirmative = english_parts(verb, tense, person)
    if not negated:
        return affirmative
    return f"cannot {main}" if tense == "can" else f"{auxiliary} not {main}"


class Event(NamedTuple):
    """Who does what: everything of a clause but tense, time, negation and word order."""

    subject: NounPhrase
    verb: Verb
    rest: Piece = NOTHING
    objects: tuple[str, ...] = ()
    clitic: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The verb with the heads of its subject and its object."""
        return tuple((noun, self.verb.en) for noun in self.subject.heads + self.objects)


def predicate(event: Event, tense: str, negated: bool = False) -> Piece:
    """The clause without its subject."""
    en = english_statement(event.verb, tense, event.subject.person, negated)
    es = spanish_verb(event.verb, tense, event.subject.person, event.clitic)
    return join(Piece(en, f"no {es}" if negated else es, (), (event.verb.en,), event.pairs), event.rest)


def statement(event: Event, tense: str, negated: bool = False) -> Piece:
    """The clause as a statement."""
    return join(event.subject.piece, predicate(event, tense, negated))


def question(event: Event, tense: str, negated: bool = False) -> Piece:
    """The clause as a question: does the cat drink the milk, bebe el gato la leche."""
    auxiliary, main, _ = english_parts(event.verb, tense, event.subject.person)
    es = spanish_verb(event.verb, tense, event.subject.person, event.clitic)
    verb = Piece("", f"no {es}" if negated else es, (), (event.verb.en,), event.pairs)
    return join((auxiliary, ""), verb, event.subject.piece, ("not" if negated else "", ""), (main, ""), event.rest)
