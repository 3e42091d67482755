"""What happens in a sentence of the built-in English-Spanish corpus: who does what, to whom, where and when."""

from collections.abc import Callable, Sequence

from builtin_corpus import lexicon
from builtin_corpus.grammar import NOTHING, Dice, Piece, join
from builtin_corpus.lexicon import Verb
from builtin_corpus.morphology import HE, ME, WE, YOU
from builtin_corpus.nouns import DEFINITE, NounPhrase, as_object, common, name, noun_phrase, some_object, some_subject
from builtin_corpus.verbs import Event

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
MANNERS = {"fast": (("quickly", "rápidamente"), ("slowly", "lentamente")), "well": (("well", "bien"), ("badly", "mal"))}
ON = frozenset(lexicon.nouns_of("surface seat ground bridge bicycle"))
AT = frozenset(lexicon.nouns_of("hub market school theater"))
NEARBY = (
    ("near", "cerca de"), ("behind", "detrás de"), ("in front of", "delante de"), ("next to", "al lado de"),
    ("far from", "lejos de"),
)  # fmt: skip


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
    """A time that fits the tense; a state wants none."""
    if "state" in verb.flags:
        return NOTHING
    if "time" in verb.flags and dice.chance(50):
        hour = dice.pick(lexicon.NUMBERS)
        return Piece(f"at {hour[0]}", f"a las {hour[1]}")
    if tense in ("past", "present", "future") and dice.chance(15):
        return Piece(*dice.pick(DAY_PARTS))
    return Piece(*dice.pick(TIMES[tense]))


def fits(event: Event, tense: str, affirmative: bool = True) -> bool:
    """Whether the clause may have the tense.

    Never one that English does not show ("I read", "they put"); "will" only for others than me, you and us, so that
    each Spanish form stays frequent.
    """
    verb, person = event.verb, event.subject.person
    if tense == "past" and affirmative:
        return verb.past != verb.en or person == HE
    if tense == "future" and person in (ME, YOU, WE):
        return False
    if "state" in verb.flags:
        return tense in ("past", "present")
    return not ("still" in verb.flags and "prog" in tense)


def some_tense(dice: Dice, event: Event, affirmative: bool = True) -> str:
    """A tense that the clause may have."""
    tense = dice.weighted(TENSES)
    while not fits(event, tense, affirmative):
        tense = dice.weighted(TENSES)
    return tense


def doing(dice: Dice, subject: NounPhrase | None = None, known: bool = False) -> Event:
    """Somebody does something to something, or just does something."""
    verb = some_verb(dice)
    if subject is not None:
        wanted = subject.heads or ("father",)
        while not all(head in verb.subjects for head in wanted):
            verb = some_verb(dice)
    return complete(dice, verb, subject or some_subject(dice, verb.subjects, known))


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
        if verb.places and (verb.en in ("live", "stay") or dice.chance(25 if verb.objects else 65)):
            parts.append(place(dice, verb.places))
    if "with" in verb.flags and subject.human and dice.chance(20):
        parts.append(join(("with", "con"), companion(dice, subject)))
    return Event(subject, verb, join(*parts), objects)


def companion(dice: Dice, subject: NounPhrase) -> Piece:
    """Somebody other than the subject."""
    while True:
        other = name(dice) if dice.chance(30) else noun_phrase(dice, lexicon.nouns_of("grown"))
        if not set(other.heads) & set(subject.heads) and other.piece.en not in subject.piece.en:
            return other.piece


def vague(piece: Piece) -> bool:
    """Whether the words sound wrong after a negation ("some", "several")."""
    return piece.en.startswith(("some ", "several ", "all the "))


def giving_event(dice: Dice) -> Event:
    """Somebody, a verb of giving, a thing and a receiver."""
    verb = dice.pick(lexicon.DATIVES)
    subject = some_subject(dice, verb.subjects)
    thing = some_object(dice, verb)
    while vague(thing.piece):
        thing = some_object(dice, verb)
    receiver = name(dice) if dice.chance(25) else noun_phrase(dice, lexicon.nouns_of("person"))
    while set(receiver.heads) & set(subject.heads) or receiver.piece.en in subject.piece.en:
        receiver = noun_phrase(dice, lexicon.nouns_of("person"))
    rest = join(thing.piece, ("to", "a"), receiver.piece)
    return Event(subject, verb, rest, thing.heads, "les" if receiver.plural else "le")
