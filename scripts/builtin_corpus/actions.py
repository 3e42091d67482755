"""Frames of the built-in English-Spanish corpus in which somebody does, gives, puts or likes something."""

from builtin_corpus import lexicon, morphology
from builtin_corpus.events import doing, fits, giving_event, nearby, place, some_tense, some_time, vague
from builtin_corpus.grammar import NOTHING, Dice, Piece, finish, join
from builtin_corpus.morphology import HE, ME, THEY
from builtin_corpus.nouns import ANIMAL_NOUNS, PERSON_NOUNS, NounPhrase, noun_phrase, some_object, some_subject
from builtin_corpus.verbs import Event, predicate, statement


def plain(dice: Dice) -> Piece:
    """The cat sat. Yesterday the girl did not buy the red apples at the market."""
    event = doing(dice)
    negated = dice.chance(17)
    tense = some_tense(dice, event, not negated)
    clause = statement(event, tense, negated)
    if not dice.chance(38):
        return finish(clause)
    when = some_time(dice, tense, event.verb)
    return finish(join(when, clause) if dice.chance(35) else join(clause, when))


def often(dice: Dice) -> Piece:
    """The cat always sleeps in the kitchen. The boy never washes the plates."""
    event = doing(dice)
    adverb = dice.pick((("always", "siempre"), ("never", "nunca"), ("often", "a menudo"), ("sometimes", "a veces")))
    clause = predicate(event, "present")
    return finish(join(event.subject.piece, adverb, clause))


def giving(dice: Dice) -> Piece:
    """The boy gave the flower to the girl: El niño le dio la flor a la niña."""
    event = giving_event(dice)
    negated = dice.chance(12)
    tense = some_tense(dice, event, not negated)
    when = some_time(dice, tense, event.verb) if dice.chance(25) else NOTHING
    return finish(join(statement(event, tense, negated), when))


def placing(dice: Dice) -> Piece:
    """My sister put the cups on the table. She found a coin in the box."""
    verb = dice.pick(lexicon.PLACINGS)
    subject = some_subject(dice, verb.subjects)
    thing = some_object(dice, verb)
    while vague(thing.piece):
        thing = some_object(dice, verb)
    where = place(dice, lexicon.nouns_of("table desk chair bed box bag basket suitcase wardrobe car"))
    if dice.chance(25):
        where = nearby(dice, lexicon.nouns_of("bed table chair sofa wardrobe lamp"))
    event = Event(subject, verb, join(thing.piece, where), thing.heads)
    negated = dice.chance(15)
    tense = some_tense(dice, event, not negated)
    when = some_time(dice, tense, verb) if dice.chance(25) else NOTHING
    return finish(join(statement(event, tense, negated), when))


IT_TABLE = """
buy: eat cook read repair wash wear
wash: eat cut sell wear
cut: eat
cook: eat
make: eat sell paint wear
find: open read hide repair clean wash eat wear
open: clean close read
break: repair
clean: close sell
paint: sell
repair: sell wear
write: read send sing
draw: paint
choose: buy read wear
bring: open
lose: find
hide: find
pick: eat sell wash cook
build: paint sell
study: solve
"""
IT_PAIRS = tuple(
    (first, second)
    for first, seconds in (row.split(":") for row in IT_TABLE.strip().split("\n"))
    for second in seconds.split()
)
BY_LEMMA = {lemma: [verb for verb in lexicon.TRANSITIVES if verb.en == lemma] for pair in IT_PAIRS for lemma in pair}
LIVING = PERSON_NOUNS | ANIMAL_NOUNS


def and_it(dice: Dice) -> Piece:
    """The girl bought an apple and ate it: the pronoun agrees with the noun."""
    while True:
        lemmas = dice.pick(IT_PAIRS)
        first, second = (dice.pick(BY_LEMMA[lemma]) for lemma in lemmas)
        shared = [n for n in first.objects if n in second.objects and n not in LIVING]
        doers = [n for n in first.subjects if n in second.subjects]
        if shared and any(noun in PERSON_NOUNS for noun in doers):
            break
    subject, thing = some_subject(dice, doers), noun_phrase(dice, shared)
    tense = "past" if dice.chance(70) else "future"
    while not all(fits(Event(subject, verb), tense) for verb in (first, second)):
        subject = some_subject(dice, doers)
    pronoun = morphology.agree("lo", thing.gender, thing.plural)
    one = Event(subject, first, thing.piece, thing.heads)
    two = Event(subject, second, Piece("them" if thing.plural else "it", ""), thing.heads, pronoun)
    second_clause = predicate(two, tense)
    if tense == "future":
        second_clause = second_clause._replace(en=second_clause.en.removeprefix("will "))
    return finish(join(statement(one, tense), ("and", "y"), second_clause))


LIKED = lexicon.nouns_of("meal drink tune movie cloth text house town flower island concert")


def liking(dice: Dice) -> Piece:
    """The boy likes the song: Al niño le gusta la canción."""
    subject, thing, negated = *liking_parts(dice), dice.chance(20)
    past = dice.chance(25)
    base = "like" if past or negated or subject.person != HE else "likes"
    auxiliary = ("did" if past else "does" if subject.person == HE else "do") + " not" if negated else ""
    english = join((auxiliary, ""), ("liked" if past and not negated else base, ""), (thing.piece.en, ""))
    to_whom = dative(subject)
    es = " ".join(filter(None, (to_whom, "no" if negated else "", gustar(subject, thing, past), thing.piece.es)))
    return finish(liked(subject, thing, f"{subject.piece.en} {english.en}", es))


def liking_question(dice: Dice) -> Piece:
    """Do you like the soup? ¿Te gusta la sopa?"""
    subject, thing = liking_parts(dice)
    while subject.person == ME:
        subject, thing = liking_parts(dice)
    past = dice.chance(30)
    auxiliary = "did" if past else "does" if subject.person == HE else "do"
    es = " ".join(filter(None, (dative(subject), gustar(subject, thing, past), thing.piece.es)))
    return finish(liked(subject, thing, f"{auxiliary} {subject.piece.en} like {thing.piece.en}", es), "?")


def liking_parts(dice: Dice) -> tuple[NounPhrase, NounPhrase]:
    """Who likes what."""
    subject = some_subject(dice, lexicon.nouns_of("person"), known=True)
    while " y " in subject.piece.es:
        subject = some_subject(dice, lexicon.nouns_of("person"), known=True)
    thing = noun_phrase(dice, LIKED, known=True)
    return subject, thing


def dative(subject: NounPhrase) -> str:
    """Whom something pleases, before the pronoun: a él, al niño; nothing for me, you and us."""
    return f"a {subject.piece.es}" if subject.piece.es else ""


def gustar(subject: NounPhrase, thing: NounPhrase, past: bool) -> str:
    """Le gusta, les gustaron."""
    pronoun = ("me", "te", "le", "nos", "les")[subject.person]
    return f"{pronoun} {morphology.conjugate('gustar', 'past' if past else 'present')[THEY if thing.plural else HE]}"


def liked(subject: NounPhrase, thing: NounPhrase, en: str, es: str) -> Piece:
    """The words with the lemmas of liking."""
    pairs = tuple((noun, "like") for noun in subject.heads + thing.heads)
    return Piece(en, es, subject.piece.nouns + thing.piece.nouns, ("like",), pairs)
