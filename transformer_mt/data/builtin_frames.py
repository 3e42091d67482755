"""The kinds of sentence in the built-in English-Spanish corpus: each frame draws one whole sentence."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer_mt.data import builtin_lexicon as lexicon
from transformer_mt.data import builtin_morphology as morphology
from transformer_mt.data.builtin_grammar import (
    ANIMAL_NOUNS, DEFINITE, KIN, NOTHING, PAST_TENSES, PERSON_NOUNS, PRONOUNS, Dice, Event, NounPhrase, Piece, as_object,
    common, finish, join, name, noun_phrase, predicate, question, some_object, some_subject, spanish_adjective,
    statement,
)  # fmt: skip
from transformer_mt.data.builtin_lexicon import Adjective, Verb
from transformer_mt.data.builtin_morphology import HE, THEY, I

Frame = Callable[[Dice], Piece]

TENSES = (("past", 42), ("present", 26), ("future", 10), ("prog", 10), ("pastprog", 5), ("can", 3), ("must", 3),
          ("want", 4), ("going", 4))  # fmt: skip

PAST_TIMES = (
    ("yesterday", "ayer"), ("last night", "anoche"), ("last week", "la semana pasada"), ("last month", "el mes pasado"),
    ("last year", "el año pasado"), ("this morning", "esta mañana"),
)  # fmt: skip
PRESENT_TIMES = (
    ("every day", "todos los días"), ("every morning", "todas las mañanas"), ("every week", "todas las semanas"),
    ("on Mondays", "los lunes"), ("on Sundays", "los domingos"), ("in summer", "en verano"),
    ("in winter", "en invierno"),
)  # fmt: skip
FUTURE_TIMES = (
    ("tomorrow", "mañana"), ("next week", "la próxima semana"), ("next month", "el próximo mes"),
    ("next year", "el próximo año"), ("soon", "pronto"), ("tonight", "esta noche"), ("later", "más tarde"),
)  # fmt: skip
TIMES = {
    "past": PAST_TIMES,
    "present": PRESENT_TIMES,
    "future": FUTURE_TIMES,
    "going": FUTURE_TIMES,
    "must": FUTURE_TIMES,
    "want": FUTURE_TIMES,
    "can": FUTURE_TIMES[:1],
    "prog": (("now", "ahora"), ("at the moment", "en este momento")),
    "pastprog": PAST_TIMES[:1] + PAST_TIMES[-1:],
}
DAY_PARTS = (
    ("in the morning", "por la mañana"), ("in the afternoon", "por la tarde"), ("at night", "por la noche"),
)  # fmt: skip
MANNERS = {
    "fast": (("quickly", "rápidamente"), ("slowly", "lentamente")),
    "well": (("well", "bien"), ("badly", "mal")),
}
ON = frozenset(lexicon.nouns_of("surface seat ground bridge carpet bicycle"))
AT = frozenset(lexicon.nouns_of("hub market school theater"))
NEARBY = (
    ("near", "cerca de"), ("behind", "detrás de"), ("in front of", "delante de"), ("next to", "al lado de"),
    ("far from", "lejos de"),
)  # fmt: skip

# Parts of a sentence ---------------------------------------------------------------------------------------------


def place(dice: Dice, nouns: Sequence[str], to: bool = False) -> Piece:
    """Where something happens, or with `to`, where it leads."""
    phrase = noun_phrase(dice, nouns, plain=True)
    while phrase.plural:
        phrase = noun_phrase(dice, nouns, plain=True)
    head = phrase.heads[0]
    if to:
        return join(("to", "a"), phrase.piece)
    return join(("on" if head in ON else "at" if head in AT else "in", "en"), phrase.piece)


def nearby(dice: Dice, nouns: Sequence[str]) -> Piece:
    """Behind the house, under the table: where things and people are."""
    options = (*NEARBY, ("under", "debajo de")) if "table" in nouns else NEARBY
    return join(dice.pick(options), common(lexicon.BY_ENGLISH[dice.pick(nouns)], False, DEFINITE).piece)


def some_time(dice: Dice, tense: str, verb: Verb) -> Piece:
    """A time that fits the tense; the past of a state wants none."""
    if "state" in verb.flags and tense == "past":
        return NOTHING
    if "time" in verb.flags and dice.chance(50):
        hour = dice.pick(lexicon.NUMBERS)
        return Piece(f"at {hour[0]}", f"a las {hour[1]}")
    if "state" not in verb.flags and tense in ("past", "present", "future") and dice.chance(15):
        return Piece(*dice.pick(DAY_PARTS))
    return Piece(*dice.pick(TIMES[tense]))


def some_tense(dice: Dice, event: Event, affirmative: bool = True) -> str:
    """A tense that the verb has; never one that English does not show ("I read", "they put")."""
    while True:
        tense = dice.weighted(TENSES)
        if "still" in event.verb.flags | ({"still"} if "state" in event.verb.flags else set()) and "prog" in tense:
            continue
        if "state" in event.verb.flags and tense not in ("past", "present"):
            continue
        if tense == "past" and affirmative and event.verb.past == event.verb.en and event.subject.person != HE:
            continue
        return tense


def doing(dice: Dice, subject: NounPhrase | None = None, pronouns: bool = True) -> Event:
    """Somebody does something to something, or just does something."""
    verb = some_verb(dice)
    if subject is not None:
        wanted = subject.heads or ("father",)
        while not all(head in verb.subjects for head in wanted):
            verb = some_verb(dice)
    return complete(dice, verb, subject or some_subject(dice, verb.subjects, pronouns))


def some_verb(dice: Dice) -> Verb:
    """A verb with an object or without one."""
    return dice.pick(lexicon.TRANSITIVES if dice.chance(64) else lexicon.INTRANSITIVES)


def complete(dice: Dice, verb: Verb, subject: NounPhrase) -> Event:
    """The verb with its object, its companion, its manner and its place."""
    parts: list[Piece] = []
    objects: tuple[str, ...] = ()
    if verb.objects:
        target = some_object(dice, verb)
        while set(target.heads) & set(subject.heads) or target.piece == subject.piece or vague(target.piece):
            target = some_object(dice, verb)
        parts, objects = [as_object(target, verb)], target.heads
    if "to" in verb.flags:
        parts.append(place(dice, verb.places, to=True))
    else:
        manner = [word for flag in ("fast", "well") if flag in verb.flags for word in MANNERS[flag]]
        if manner and dice.chance(25):
            parts.append(Piece(*dice.pick(manner)))
        if verb.places and (not verb.objects and dice.chance(60) or dice.chance(25) or verb.en in ("live", "stay")):
            parts.append(place(dice, verb.places))
    if "with" in verb.flags and subject.human and dice.chance(20):
        parts.append(join(("with", "con"), companion(dice, subject)))
    return Event(subject, verb, join(*parts), objects)


def companion(dice: Dice, subject: NounPhrase) -> Piece:
    """Somebody other than the subject."""
    while True:
        other = name(dice) if dice.chance(30) else noun_phrase(dice, lexicon.nouns_of("kin adult"))
        if not set(other.heads) & set(subject.heads) and other.piece.en not in subject.piece.en:
            return other.piece


def vague(piece: Piece) -> bool:
    """Whether the words sound wrong after a negation ("some", "several")."""
    return piece.en.startswith(("some ", "several ", "all the "))


# Statements ------------------------------------------------------------------------------------------------------


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


def giving_event(dice: Dice) -> Event:
    """Somebody, a verb of giving, a thing and a receiver."""
    verb = dice.pick(lexicon.DATIVES)
    subject = some_subject(dice, verb.subjects)
    thing = some_object(dice, verb)
    receiver = name(dice) if dice.chance(25) else noun_phrase(dice, lexicon.nouns_of("person"))
    while set(receiver.heads) & set(subject.heads) or receiver.piece.en in subject.piece.en:
        receiver = noun_phrase(dice, lexicon.nouns_of("person"))
    rest = join(thing.piece, ("to", "a"), receiver.piece)
    return Event(subject, verb, rest, thing.heads, "les" if receiver.plural else "le")


def placing(dice: Dice) -> Piece:
    """My sister put the cups on the table. She found a coin in the box."""
    verb = dice.pick(lexicon.PLACINGS)
    subject = some_subject(dice, verb.subjects)
    thing = some_object(dice, verb)
    where = place(dice, lexicon.nouns_of("table desk shelf chair bed box bag basket suitcase wardrobe car"))
    if dice.chance(25):
        where = nearby(dice, lexicon.nouns_of("bed table chair sofa wardrobe door lamp"))
    event = Event(subject, verb, join(thing.piece, where), thing.heads)
    negated = dice.chance(15)
    tense = some_tense(dice, event, not negated)
    when = some_time(dice, tense, verb) if dice.chance(25) else NOTHING
    return finish(join(statement(event, tense, negated), when))


IT_PAIRS = tuple(
    pair.split()
    for pair in """buy eat, buy cook, buy read, buy repair, buy wash, cook eat, cut eat, wash eat, wash cut, wash sell,
    order eat, order drink, taste eat, taste buy, taste order, prepare eat, prepare drink, make eat, make sell,
    make paint, find open, find read, find hide, find sell, find repair, find clean, find wash, find eat, open clean,
    open close, open read, break repair, clean close, clean sell, clean use, paint sell, repair sell, repair use,
    write read, write send, write burn, write learn, draw paint, choose buy, choose order, choose read, bring open,
    carry open, lose find, hide find, forget learn, learn sing, write sing, pick eat, pick sell, pick wash, pick cook,
    steal hide, steal sell, build paint, build sell, understand solve, study understand, study solve, wash wear,
    buy wear, choose wear, find wear, repair wear, make wear""".split(",")
)  # fmt: skip


def and_it(dice: Dice) -> Piece:
    """The girl bought an apple and ate it: the pronoun agrees with the noun."""
    while True:
        lemmas = dice.pick(IT_PAIRS)
        first, second = (dice.pick([v for v in lexicon.TRANSITIVES if v.en == lemma]) for lemma in lemmas)
        shared = [n for n in first.objects if n in second.objects and n not in PERSON_NOUNS | ANIMAL_NOUNS]
        doers = [n for n in first.subjects if n in second.subjects]
        if shared and any(noun in PERSON_NOUNS for noun in doers):
            break
    subject, thing = some_subject(dice, doers), noun_phrase(dice, shared)
    tense = "past" if dice.chance(70) and "state" not in second.flags else "future"
    if subject.person != HE and any(verb.past == verb.en for verb in (first, second)):
        tense = "future"
    pronoun = morphology.agree("lo", thing.gender, thing.plural)
    one = Event(subject, first, thing.piece, thing.heads)
    two = Event(subject, second, Piece("them" if thing.plural else "it", ""), thing.heads, pronoun)
    second_clause = predicate(two, tense)
    if tense == "future":
        second_clause = replace(second_clause, en=second_clause.en.removeprefix("will "))
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
    past = dice.chance(30)
    auxiliary = "did" if past else "does" if subject.person == HE else "do"
    es = " ".join(filter(None, (dative(subject), gustar(subject, thing, past), thing.piece.es)))
    return finish(liked(subject, thing, f"{auxiliary} {subject.piece.en} like {thing.piece.en}", es), "?")


def liking_parts(dice: Dice) -> tuple[NounPhrase, NounPhrase]:
    """Who likes what."""
    subject = some_subject(dice, lexicon.nouns_of("person"))
    while " y " in subject.piece.es:
        subject = some_subject(dice, lexicon.nouns_of("person"))
    thing = noun_phrase(dice, LIKED)
    while not thing.piece.en.startswith(("the ", "this ", "that ", "these ", "those ", "my ", "your ", "our ")):
        thing = noun_phrase(dice, LIKED)
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


# To be and to have -----------------------------------------------------------------------------------------------

BE = Verb("be", "was", "ser", "", (), (), (), frozenset({"state"}))
HAVE = next(verb for verb in lexicon.TRANSITIVES if verb.en == "have")
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
        subject = some_subject(dice, nouns)
        if subject in PRONOUNS and subject.person not in (HE, THEY) and adjective.es.endswith("o"):
            subject = PRONOUNS[2]
        return subject, adjective
    noun = lexicon.BY_ENGLISH[dice.pick(nouns)]
    subject = noun_phrase(dice, (noun.en,))
    while vague(subject.piece) or adjective.en in subject.piece.en.split():
        subject = noun_phrase(dice, (noun.en,))
    return subject, adjective


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
    return replace(whole, es=f"{complement[1]} {subject.es}".strip())


NEVER_VERY = ("delicioso", "roto", "abierto", "cerrado", "antiguo", "redondo", "vacío")


def comparison(dice: Dice) -> Piece:
    """The dog is bigger than the cat. This book is more interesting than that movie."""
    options = [a for a in PREDICATIVES if a.copula == "s" and len(a.nouns) > 2 and "color" not in a.flags]
    while True:
        adjective = dice.pick(options)
        one = lexicon.BY_ENGLISH[dice.pick(sorted(adjective.nouns))]
        alike = [n for n in sorted(adjective.nouns) if lexicon.BY_ENGLISH[n].kind == one.kind and n != one.en]
        if alike and adjective.es not in ("redondo", "rojo", "azul", "verde", "amarillo", "gris", "marrón"):
            break
    two = lexicon.BY_ENGLISH[dice.pick(alike)]
    plural = dice.chance(25)
    left = noun_phrase(dice, (one.en,))
    while vague(left.piece) or left.piece.en.startswith(("another", "many")) or adjective.en in left.piece.en.split():
        left = noun_phrase(dice, (one.en,))
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
        subject = some_subject(dice, nouns)
        return finish(being(subject, where.en, where.es, spanish_be("e", subject.person, past), past, dice.chance(15)))
    if kind < 6:
        subject = some_subject(dice, nouns)
        verb = Piece(be(subject.person, past), spanish_be("e", subject.person, past), (), ("be",))
        return finish(join(("where", "dónde"), verb, subject.piece), "?")
    noun = lexicon.BY_ENGLISH[dice.pick(nouns)]
    plural = dice.chance(50)
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
        return nearby(dice, lexicon.nouns_of("bed table chair sofa wardrobe lamp computer door window"))
    return place(dice, lexicon.nouns_of("surface chair bed sofa container wardrobe kitchen office bedroom car"))


def feeling(dice: Dice) -> Piece:
    """The boy is hungry: El niño tiene hambre. Were you afraid? ¿Tenías miedo?"""
    subject = some_subject(dice, lexicon.nouns_of("person pet"))
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
    subject = noun_phrase(dice, lexicon.nouns_of("boy girl son daughter cousin brother sister pet"))
    while vague(subject.piece) or " y " in subject.piece.es:
        subject = noun_phrase(dice, lexicon.nouns_of("boy girl son daughter cousin brother sister pet"))
    if dice.chance(20):
        subject = name(dice)
    number = dice.pick(lexicon.NUMBERS)
    form = morphology.conjugate("tener", "present")[subject.person]
    return finish(being(subject, f"{number[0]} years old", f"{number[1]} años", form, False))


# Questions and commands ------------------------------------------------------------------------------------------


def asking(dice: Dice) -> Piece:
    """Did the cat drink the milk? ¿Bebió el gato la leche?"""
    event = doing(dice) if dice.chance(85) else giving_event(dice)
    tense = some_tense(dice, event, affirmative=False)
    when = some_time(dice, tense, event.verb) if dice.chance(20) else NOTHING
    return finish(join(question(event, tense), when), "?")


def asking_what(dice: Dice) -> Piece:
    """What did the girl buy? Who broke the window? How many books did you read?"""
    kind = dice.below(4)
    verb = dice.pick([v for v in lexicon.TRANSITIVES if "father" in v.subjects and v.en != "enter"])
    subject = some_subject(dice, verb.subjects)
    if kind < 2:
        event = complete(dice, verb, NounPhrase(Piece("who", "quién"), HE, "m"))
        return finish(statement(event, some_tense(dice, event)), "?")
    inanimate = [v for v in lexicon.TRANSITIVES if not set(v.objects) & (PERSON_NOUNS | KIN) and "father" in v.subjects]
    verb = dice.pick([v for v in inanimate if not v.preposition])
    if kind == 2:
        event = Event(subject if set(subject.heads) <= set(verb.subjects) else PRONOUNS[3], verb)
        return finish(join(("what", "qué"), question(event, some_tense(dice, event, False))), "?")
    countable = [
        n for n in verb.objects if not lexicon.BY_ENGLISH[n].flags & {"mass", "unique"} and n not in ANIMAL_NOUNS
    ]
    subject = some_subject(dice, verb.subjects)
    thing = common(lexicon.BY_ENGLISH[dice.pick(countable)], True, ("", "how many", "cuánto"))
    event = Event(subject, verb, NOTHING, thing.heads)
    tense = dice.pick(("past", "present", "future") if "state" not in verb.flags else ("present", "past"))
    return finish(join(thing.piece, question(event, tense)), "?")


def asking_where(dice: Dice) -> Piece:
    """Where does the boy work? When did the train arrive? Why is the baby crying?"""
    word = dice.pick((("where", "dónde"), ("when", "cuándo"), ("why", "por qué")))
    event = doing(dice)
    while (word[0] == "where" and (not event.verb.places or event.verb.objects)) or (
        word[0] == "when" and "state" in event.verb.flags
    ):
        event = doing(dice)
    if word[0] == "where":
        word = ("where", "adónde") if "to" in event.verb.flags else word
        event = event._replace(rest=NOTHING)
        if event.verb.en == "come":
            word = ("when", "cuándo")
    tense = some_tense(dice, event, affirmative=False)
    while tense == "want" or (word[0] == "when" and tense == "prog") or (word[0] == "when" and tense == "pastprog"):
        tense = some_tense(dice, event, affirmative=False)
    return finish(join(word, question(event, tense)), "?")


def ordering(dice: Dice) -> Piece:
    """Open the door! Wash your hands, please: the familiar imperative."""
    verb = dice.pick([verb for verb in lexicon.TRANSITIVES if "order" in verb.flags])
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
    adjective = dice.pick([a for a in PREDICATIVES if a.copula == "s" and a.es not in NEVER_VERY])
    noun = lexicon.BY_ENGLISH[dice.pick(sorted(adjective.nouns))]
    plural = not noun.flags & {"mass", "unique"} and dice.chance(35)
    es_noun = noun.es_plural if plural else noun.es
    en_noun = noun.en_plural if plural else noun.en
    article = "" if plural or noun.flags & {"mass"} else "a"
    es = f"qué {es_noun} tan {spanish_adjective(adjective, noun.gender, plural)}"
    en = join(("what", ""), (article, ""), (adjective.en, ""), (en_noun, "")).en
    return finish(Piece(en, es, (noun.en,)), "!")


# Two clauses -----------------------------------------------------------------------------------------------------


def coordinated(dice: Dice) -> Piece:
    """The boy opened the door and the girl closed the window. I sang, but my sister did not dance."""
    one, two = doing(dice), doing(dice)
    while one.subject.piece == two.subject.piece or set(one.subject.heads) & set(two.subject.heads):
        two = doing(dice)
    tense = some_tense(dice, one)
    other = "present" if tense not in ("past", "future", "prog") else tense
    if not fits(two, other) or not fits(one, tense):
        return coordinated(dice)
    if dice.chance(40) and other == "past":
        return finish(join(statement(one, tense), (",", ","), ("but", "pero"), statement(two, other, True)))
    return finish(join(statement(one, tense), ("and", "y"), statement(two, other)))


def fits(event: Event, tense: str) -> bool:
    """Whether the verb has the tense and English shows it."""
    flags = event.verb.flags
    hidden = tense == "past" and event.verb.past == event.verb.en and event.subject.person != HE
    return not (
        hidden or ("state" in flags and tense not in ("past", "present")) or ("still" in flags and "prog" in tense)
    )


def sequence(dice: Dice) -> Piece:
    """The boy opened the window and closed the door."""
    one = doing(dice)
    two = doing(dice, one.subject if one.subject.heads or one.subject.human else None)
    tense = dice.pick(("past", "past", "present"))
    if one.verb.en == two.verb.en or not fits(one, tense) or not fits(two, tense):
        return sequence(dice)
    if "state" in one.verb.flags | two.verb.flags or len(one.subject.heads) > 1:
        return sequence(dice)
    return finish(join(statement(one, tense), ("and", "y"), predicate(two, tense)))


def related(dice: Dice) -> Piece:
    """The woman who lives in the castle bought a horse: La mujer que vive en el castillo compró un caballo."""
    event = doing(dice)
    while not event.subject.heads or len(event.subject.heads) > 1:
        event = doing(dice)
    head = common(lexicon.BY_ENGLISH[event.subject.heads[0]], event.subject.plural, DEFINITE)
    inner, outer = doing(dice, head), event._replace(subject=head)
    tense, inner_tense = dice.pick((("past", "past"), ("past", "present"), ("present", "past"), ("future", "past")))
    if inner.verb.en == outer.verb.en or not fits(outer, tense) or not fits(inner, inner_tense):
        return related(dice)
    if set(inner.objects) & set(outer.objects):
        return related(dice)
    pronoun = ("who" if head.human else "that", "que")
    return finish(join(head.piece, pronoun, predicate(inner, inner_tense), predicate(outer, tense)))


def object_related(dice: Dice) -> Piece:
    """The book that the girl bought is red: El libro que la niña compró es rojo."""
    while True:
        subject, adjective = described(dice)
        verbs = [
            v for v in lexicon.TRANSITIVES if subject.heads and subject.heads[0] in v.objects and not v.preposition
        ]
        if verbs and not subject.human and not subject.animal:
            break
    head = common(lexicon.BY_ENGLISH[subject.heads[0]], subject.plural, DEFINITE)
    verb = dice.pick(verbs)
    doer = some_subject(dice, verb.subjects)
    event = Event(doer, verb, NOTHING, head.heads)
    tense = "past" if fits(event, "past") else "present"
    past = dice.chance(20)
    es_adjective = spanish_adjective(adjective, head.gender, head.plural)
    noun = join(head.piece, ("that", "que"), statement(event, tense))
    whole = replace(head, piece=noun)
    return finish(being(whole, adjective.en, es_adjective, spanish_be(adjective.copula, head.person, past), past))


def because(dice: Dice) -> Piece:
    """The boy did not work because he was tired: El niño no trabajó porque estaba cansado."""
    event = doing(dice)
    negated = dice.chance(35)
    animate = event.subject.human or event.subject.animal
    if not animate or not (negated or fits(event, "past")) or "state" in event.verb.flags or vague(event.subject.piece):
        return because(dice)
    en, es = motive(dice, event.subject)
    return finish(join(statement(event, "past", negated), (f"because {anaphor(event.subject)}", "porque"), (en, es)))


def anaphor(subject: NounPhrase) -> str:
    """The English pronoun that takes the subject up again."""
    if subject in PRONOUNS or subject.plural or not subject.heads:
        if subject in PRONOUNS:
            return subject.piece.en
        if subject.plural:
            return "they" if subject.person == THEY else "we"
    if not subject.human:
        return "it"
    return "he" if subject.gender == "m" else "she"


def motive(dice: Dice, subject: NounPhrase) -> tuple[str, str]:
    """Was tired, were hungry."""
    past = be(subject.person, True)
    if dice.chance(50):
        en, es = dice.pick(FEELINGS[:5])
        return f"{past} {en}", f"{morphology.conjugate('tener', 'imperfect')[subject.person]} {es}"
    shown = subject.person == I or subject in PRONOUNS[:2] or subject == PRONOUNS[4]
    moods = [a for a in PREDICATIVES if a.copula == "e" and {"father", "dog"} <= a.nouns or a.en in MOODS]
    adjective = dice.pick([a for a in moods if not (shown and a.es.endswith("o"))])
    spanish = spanish_adjective(adjective, subject.gender, subject.plural)
    return f"{past} {adjective.en}", f"{spanish_be('e', subject.person, True)} {spanish}"


MOODS = ("happy", "sad")


def when_clause(dice: Dice) -> Piece:
    """When the teacher arrived, the students were reading."""
    one, two = doing(dice), doing(dice)
    early = one.verb.en in (
        "arrive",
        "wake up",
        "get up",
        "return",
        "see",
        "enter",
        "come",
        "go to bed",
        "start",
        "fall",
    )
    same = one.subject.piece == two.subject.piece or set(one.subject.heads) & set(two.subject.heads)
    if not early or same or not fits(one, "past") or not fits(two, "pastprog"):
        return when_clause(dice)
    if dice.chance(50):
        return finish(join(("when", "cuando"), statement(one, "past"), (",", ","), statement(two, "pastprog")))
    return finish(join(statement(two, "pastprog"), ("when", "cuando"), statement(one, "past")))


SAYING = (
    Verb("think", "thought", "creer", "", (), (), (), frozenset({"state"})),
    Verb("know", "knew", "saber", "", (), (), (), frozenset({"state"})),
    Verb("say", "said", "decir", "", (), (), (), frozenset()),
)


def saying(dice: Dice) -> Piece:
    """The nurse says that the baby is sleeping."""
    speaker = some_subject(dice, lexicon.nouns_of("kin adult"))
    verb = dice.pick(SAYING)
    event, tense = doing(dice), dice.pick(("present", "future", "prog", "past"))
    if not fits(event, tense) or event.subject.piece == speaker.piece or set(event.subject.heads) & set(speaker.heads):
        return saying(dice)
    return finish(join(statement(Event(speaker, verb), "present"), ("that", "que"), statement(event, tense)))


FRAMES: tuple[tuple[Frame, int], ...] = (
    (plain, 36), (often, 5), (giving, 6), (placing, 5), (and_it, 4), (liking, 3), (liking_question, 2), (quality, 8),
    (comparison, 3), (whereabouts, 6), (feeling, 3), (age, 1), (asking, 8), (asking_what, 5), (asking_where, 4),
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
