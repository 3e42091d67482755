"""The kinds of sentence in the built-in English-Spanish corpus, and how often each is drawn."""

from builtin_corpus import lexicon
from builtin_corpus.actions import and_it, giving, liking, liking_question, often, placing, plain
from builtin_corpus.asking import admiring, asking, asking_how_many, asking_what, asking_where, asking_who, ordering
from builtin_corpus.being import age, comparison, feeling, quality, whereabouts
from builtin_corpus.clauses import because, coordinated, object_related, related, saying, sequence, when_clause
from builtin_corpus.events import Frame
from builtin_corpus.grammar import Dice, Piece, finish
from builtin_corpus.nouns import DEFINITE, common
from builtin_corpus.verbs import Event, statement

FRAMES: tuple[tuple[Frame, int], ...] = (
    (plain, 36), (often, 5), (giving, 6), (placing, 5), (and_it, 4), (liking, 3), (liking_question, 2), (quality, 8),
    (comparison, 3), (whereabouts, 6), (feeling, 3), (age, 1), (asking, 8), (asking_who, 3), (asking_what, 2),
    (asking_how_many, 2), (asking_where, 4),
    (ordering, 3), (admiring, 1), (coordinated, 6), (sequence, 5), (related, 5), (object_related, 2), (because, 4),
    (when_clause, 4), (saying, 4),
)  # fmt: skip


def sentence(dice: Dice) -> Piece:
    """One sentence of any kind, with the mark at its end."""
    return dice.weighted(FRAMES)(dice)


def first_sentence() -> Piece:
    """The cat sat: the sentence that the README translates."""
    cat = common(lexicon.BY_ENGLISH["cat"], False, DEFINITE)
    verb = next(verb for verb in lexicon.INTRANSITIVES if verb.en == "sit")
    return finish(statement(Event(cat, verb), "past"), "")
