"""Frames of the built-in English-Spanish corpus that ask, command or exclaim."""

from builtin_corpus import lexicon, morphology
from builtin_corpus.being import COMPARABLE
from builtin_corpus.events import complete, doing, fits, giving_event, some_tense, some_time, vague
from builtin_corpus.grammar import NOTHING, Dice, Piece, finish, join
from builtin_corpus.morphology import HE, ME
from builtin_corpus.nouns import (
    ANIMAL_NOUNS,
    PERSON_NOUNS,
    NounPhrase,
    as_object,
    common,
    some_object,
    some_subject,
    spanish_adjective,
)
from builtin_corpus.verbs import Event, question, statement


def asking(dice: Dice) -> Piece:
    """Did the cat drink the milk? ¿Bebió el gato la leche?"""
    event = doing(dice, known=True) if dice.chance(85) else giving_event(dice)
    while event.subject.person == ME:
        event = doing(dice, known=True)
    tense = some_tense(dice, event, affirmative=False)
    when = some_time(dice, tense, event.verb) if dice.chance(20) else NOTHING
    return finish(join(question(event, tense), when), "?")


PERSONAL = tuple(verb for verb in lexicon.TRANSITIVES if "father" in verb.subjects and verb.en != "enter")
IMPERSONAL_OBJECTS = tuple(
    verb for verb in PERSONAL if not verb.preposition and not set(verb.objects) & (PERSON_NOUNS | ANIMAL_NOUNS)
)
COUNTED = {
    verb: countable
    for verb in IMPERSONAL_OBJECTS
    if (countable := [n for n in verb.objects if not lexicon.BY_ENGLISH[n].flags & {"mass", "single"}])
}


def asking_who(dice: Dice) -> Piece:
    """Who broke the window? ¿Quién rompió la ventana?"""
    event = complete(dice, dice.pick(PERSONAL), NounPhrase(Piece("who", "quién"), HE, "m"))
    return finish(statement(event, some_tense(dice, event)), "?")


def asking_what(dice: Dice) -> Piece:
    """What did the girl buy? ¿Qué compró la niña?"""
    verb = dice.pick(IMPERSONAL_OBJECTS)
    event = Event(some_subject(dice, verb.subjects, known=True), verb)
    return finish(join(("what", "qué"), question(event, some_tense(dice, event, affirmative=False))), "?")


def asking_how_many(dice: Dice) -> Piece:
    """How many books did you read? ¿Cuántos libros leíste?"""
    verb = dice.pick(tuple(COUNTED))
    thing = common(lexicon.BY_ENGLISH[dice.pick(COUNTED[verb])], True, ("", "how many", "cuánto"))
    event = Event(some_subject(dice, verb.subjects, known=True), verb, NOTHING, thing.heads)
    tense = dice.pick(("past", "present", "future"))
    while not fits(event, tense, affirmative=False):
        tense = dice.pick(("past", "present", "future"))
    return finish(join(thing.piece, question(event, tense)), "?")


def asking_where(dice: Dice) -> Piece:
    """Where does the boy work? When did the train arrive? Why is the baby crying?"""
    word = dice.pick((("where", "dónde"), ("when", "cuándo"), ("why", "por qué")))
    event = doing(dice, known=True)
    while (word[0] == "where" and (not event.verb.places or event.verb.objects)) or (
        word[0] == "when" and "state" in event.verb.flags
    ):
        event = doing(dice, known=True)
    if word[0] == "where":
        word = ("where", "adónde") if "to" in event.verb.flags else word
        event = event._replace(rest=NOTHING)
        if event.verb.en == "come":
            word = ("when", "cuándo")
    tense = some_tense(dice, event, affirmative=False)
    while tense == "want" or (word[0] == "when" and tense == "prog") or (word[0] == "when" and tense == "pastprog"):
        tense = some_tense(dice, event, affirmative=False)
    return finish(join(word, question(event, tense)), "?")


COMMANDS = tuple(verb for verb in lexicon.TRANSITIVES if "order" in verb.flags)


def ordering(dice: Dice) -> Piece:
    """Open the door! Wash your hands, please: the familiar imperative."""
    verb = dice.pick(COMMANDS)
    thing = some_object(dice, verb)
    while vague(thing.piece) or thing.piece.en.startswith(("another", "many")):
        thing = some_object(dice, verb)
    spanish = morphology.conjugate(verb.es, "present")[HE]
    pairs = tuple((noun, verb.en) for noun in thing.heads)
    command = join(Piece(verb.en, spanish, (), (verb.en,), pairs), as_object(thing, verb))
    if dice.chance(40):
        return finish(join(command, (", please", ", por favor")))
    return finish(command, "!")


def admiring(dice: Dice) -> Piece:
    """What a beautiful house! ¡Qué casa tan hermosa!"""
    adjective = dice.pick(COMPARABLE)
    noun = lexicon.BY_ENGLISH[dice.pick(sorted(adjective.nouns))]
    plural = not noun.flags & {"mass", "single"} and dice.chance(35)
    es_noun = noun.es_plural if plural else noun.es
    en_noun = noun.en_plural if plural else noun.en
    article = "" if plural or noun.flags & {"mass"} else "a"
    es = f"qué {es_noun} tan {spanish_adjective(adjective, noun.gender, plural)}"
    en = join(("what", ""), (article, ""), (adjective.en, ""), (en_noun, "")).en
    return finish(Piece(en, es, (noun.en,)), "!")
