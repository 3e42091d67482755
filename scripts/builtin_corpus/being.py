"""Frames of the built-in English-Spanish corpus with to be: ser, estar, hay and the idioms with tener."""

from builtin_corpus import lexicon, morphology
from builtin_corpus.events import nearby, place
from builtin_corpus.grammar import Dice, Piece, finish, join
from builtin_corpus.lexicon import Adjective, Noun
from builtin_corpus.morphology import HE, THEY
from builtin_corpus.nouns import (
    DEFINITE,
    PRONOUNS,
    NounPhrase,
    common,
    name,
    some_determiner,
    some_subject,
    spanish_adjective,
)

PREDICATIVES = tuple(adjective for adjective in lexicon.ADJECTIVES if adjective.copula != "-")
FEELINGS = (
    ("hungry", "hambre"), ("thirsty", "sed"), ("sleepy", "sueño"), ("afraid", "miedo"), ("in a hurry", "prisa"),
    ("right", "razón"),
)  # fmt: skip


def be(person: int, past: bool) -> str:
    """The form of to be."""
    return (morphology.BE_PAST if past else morphology.BE_PRESENT)[person]


def spanish_be(copula: str, person: int, past: bool) -> str:
    """The form of ser ("s") or estar ("e")."""
    return morphology.conjugate("ser" if copula == "s" else "estar", "imperfect" if past else "present")[person]


def being(subject: NounPhrase, en: str, es: str, spanish_form: str, past: bool, negated: bool = False) -> Piece:
    """Subject, to be (or whatever Spanish says instead), complement."""
    form = be(subject.person, past) + (" not" if negated else "")
    spanish = f"no {spanish_form}" if negated else spanish_form
    pairs = tuple((noun, "be") for noun in subject.heads)
    return join(subject.piece, Piece(form, spanish, (), ("be",), pairs), (en, es))


def described(dice: Dice) -> tuple[NounPhrase, Adjective]:
    """A subject and an adjective that is true of it; I, you and we only where the adjective shows no gender."""
    adjective = dice.pick(PREDICATIVES)
    nouns = sorted(adjective.nouns)
    if "father" in adjective.nouns:
        subject = some_subject(dice, nouns, known=True)
        if len(subject.heads) == 1:
            subject = unadorned(dice, lexicon.BY_ENGLISH[subject.heads[0]])
        if subject in PRONOUNS and subject.person not in (HE, THEY) and adjective.es.endswith("o"):
            subject = PRONOUNS[2]
        return subject, adjective
    noun = lexicon.BY_ENGLISH[dice.pick(nouns)]
    return unadorned(dice, noun), adjective


def unadorned(dice: Dice, noun: Noun) -> NounPhrase:
    """Something definite without an adjective of its own, which might contradict the one that is said of it."""
    plural = not noun.flags & {"mass", "single"} and dice.chance(35)
    return common(noun, plural, some_determiner(dice, noun, plural, known=True))


def quality(dice: Dice) -> Piece:
    """The house is very big. The soup was not hot. Are the apples sweet?"""
    subject, adjective = described(dice)
    past, negated, asked = dice.chance(30), dice.chance(15), dice.chance(20)
    very = ("very", "muy") if dice.chance(25) and adjective.es not in NEVER_VERY else ("", "")
    es_adjective = spanish_adjective(adjective, subject.gender, subject.plural)
    en, es = join(very, (adjective.en, es_adjective)).en, join(very, ("", es_adjective)).es
    form = spanish_be(adjective.copula, subject.person, past)
    if asked:
        pairs = tuple((noun, "be") for noun in subject.heads)
        verb = Piece(be(subject.person, past), form, (), ("be",), pairs)
        return finish(join(verb, swap(subject.piece, (en, es))), "?")
    return finish(
        being(subject, en, es, form, past, negated), "!" if very[0] and dice.chance(25) and not negated else "."
    )


def swap(subject: Piece, complement: tuple[str, str]) -> Piece:
    """English subject and complement, Spanish complement and subject: is the soup cold, ¿está fría la sopa?"""
    whole = join(subject, (complement[0], ""))
    return whole._replace(es=f"{complement[1]} {subject.es}".strip())


NEVER_VERY = ("delicioso", "roto", "abierto", "cerrado", "antiguo", "redondo", "vacío")


INCOMPARABLE = ("round", "red", "black", "white", "yellow", "green", "blue", "brown", "gray", "ancient", "delicious")
COMPARABLE = tuple(a for a in PREDICATIVES if a.copula == "s" and len(a.nouns) > 2 and a.en not in INCOMPARABLE)


def comparison(dice: Dice) -> Piece:
    """The dog is bigger than the cat. This book is more interesting than that movie."""
    options = COMPARABLE
    while True:
        adjective = dice.pick(options)
        one = lexicon.BY_ENGLISH[dice.pick(sorted(adjective.nouns))]
        alike = [n for n in sorted(adjective.nouns) if lexicon.BY_ENGLISH[n].kind == one.kind and n != one.en]
        if alike:
            break
    two = lexicon.BY_ENGLISH[dice.pick(alike)]
    plural = not two.flags & {"mass", "single"} and dice.chance(25)
    left = unadorned(dice, one)
    right = common(two, plural, DEFINITE)
    en = morphology.comparative(adjective.en) if "c" in adjective.flags else f"more {adjective.en}"
    es = "más " + spanish_adjective(adjective, left.gender, left.plural)
    past = dice.chance(15)
    form = spanish_be("s", left.person, past)
    return finish(join(being(left, en, es, form, past), ("than", "que"), right.piece))


def whereabouts(dice: Dice) -> Piece:
    """The keys are on the table. Where is the teacher? There is a cat under the chair."""
    living = dice.chance(50)
    nouns = lexicon.nouns_of("person pet" if living else "small text vessel tableware writing toy cloth jewel")
    past = dice.chance(30)
    where = some_where(dice, living)
    kind = dice.below(10)
    if kind < 4:
        subject = some_subject(dice, nouns, known=True)
        return finish(being(subject, where.en, where.es, spanish_be("e", subject.person, past), past, dice.chance(15)))
    if kind < 6:
        subject = some_subject(dice, nouns, known=True)
        verb = Piece(be(subject.person, past), spanish_be("e", subject.person, past), (), ("be",))
        return finish(join(("where", "dónde"), verb, subject.piece), "?")
    noun = lexicon.BY_ENGLISH[dice.pick(nouns)]
    plural = "single" not in noun.flags and dice.chance(50)
    determiner = ("", *dice.pick(lexicon.NUMBERS)) if plural else ("a", "", "un")
    thing = common(noun, plural, determiner)
    form = be(thing.person, past)
    there = (f"there {form}", "había" if past else "hay")
    if kind < 8:
        return finish(join(there, thing.piece, where))
    return finish(join((f"{form} there", there[1]), thing.piece, where), "?")


def some_where(dice: Dice, living: bool) -> Piece:
    """A place for the living, or for things."""
    if living:
        if dice.chance(50):
            return nearby(dice, lexicon.nouns_of("landmark door window"))
        return place(dice, lexicon.nouns_of("room home public trade open waters beach"))
    if dice.chance(40):
        return nearby(dice, lexicon.nouns_of("bed table chair sofa wardrobe lamp computer window"))
    return place(dice, lexicon.nouns_of("surface chair bed sofa container wardrobe kitchen office bedroom car"))


def feeling(dice: Dice) -> Piece:
    """The boy is hungry: El niño tiene hambre. Were you afraid? ¿Tenías miedo?"""
    subject = some_subject(dice, lexicon.nouns_of("person pet"), known=True)
    en, es = dice.pick(FEELINGS)
    if en == "right" and not subject.human:
        en, es = FEELINGS[0]
    past = dice.chance(40)
    form = morphology.conjugate("tener", "imperfect" if past else "present")[subject.person]
    if dice.chance(30):
        verb = Piece(be(subject.person, past), form, (), ("be",))
        return finish(join(verb, swap(subject.piece, (en, es))), "?")
    return finish(being(subject, en, es, form, past, dice.chance(20)))


def age(dice: Dice) -> Piece:
    """My sister is nine years old: Mi hermana tiene nueve años."""
    noun = dice.pick(lexicon.nouns_of("boy girl son daughter cousin brother sister pet"))
    subject = unadorned(dice, lexicon.BY_ENGLISH[noun])
    if dice.chance(20):
        subject = name(dice)
    number = dice.pick(lexicon.NUMBERS)
    form = morphology.conjugate("tener", "present")[subject.person]
    return finish(being(subject, f"{number[0]} years old", f"{number[1]} años", form, False))
