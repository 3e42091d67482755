"""Frames of the built-in English-Spanish corpus with two clauses."""

from builtin_corpus import lexicon, morphology
from builtin_corpus.being import FEELINGS, PREDICATIVES, be, being, described, spanish_be
from builtin_corpus.events import complete, doing, fits, some_tense, vague
from builtin_corpus.grammar import NOTHING, Dice, Piece, finish, join
from builtin_corpus.lexicon import Verb
from builtin_corpus.morphology import ME, THEY
from builtin_corpus.nouns import DEFINITE, PRONOUNS, NounPhrase, common, some_subject, spanish_adjective, voiced
from builtin_corpus.verbs import Event, predicate, statement


def same_subject(one: Event, two: Event) -> bool:
    """Whether somebody is subject of both."""
    return one.subject.piece == two.subject.piece or bool(set(one.subject.heads) & set(two.subject.heads))


def coordinated(dice: Dice) -> Piece:
    """The boy opened the door and the girl closed the window. I sang, but my sister did not dance."""
    one, two = doing(dice), doing(dice)
    while same_subject(one, two):
        two = doing(dice)
    tense = some_tense(dice, one)
    other = "present" if tense not in ("past", "future", "prog") else tense
    if not fits(two, other) or not fits(one, tense):
        return coordinated(dice)
    two = two._replace(subject=voiced(two.subject))
    if dice.chance(40) and other == "past":
        return finish(join(statement(one, tense), (",", ","), ("but", "pero"), statement(two, other, True)))
    return finish(join(statement(one, tense), ("and", "y"), statement(two, other)))


def sequence(dice: Dice) -> Piece:
    """The boy opened the window and closed the door."""
    one = doing(dice)
    two = doing(dice, one.subject)
    tense = dice.pick(("past", "past", "present"))
    if one.verb.en == two.verb.en or not fits(one, tense) or not fits(two, tense):
        return sequence(dice)
    if "state" in one.verb.flags | two.verb.flags or len(one.subject.heads) > 1:
        return sequence(dice)
    return finish(join(statement(one, tense), ("and", "y"), predicate(two, tense)))


def related(dice: Dice) -> Piece:
    """The woman who lives in the castle bought a horse: La mujer que vive en el castillo compró un caballo."""
    event = doing(dice)
    while len(event.subject.heads) != 1:
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
    while doer.piece.en.startswith(("that ", "those ")):
        doer = some_subject(dice, verb.subjects)
    event = Event(doer, verb, NOTHING, head.heads)
    tense = "past" if fits(event, "past") else "present"
    past = dice.chance(20)
    es_adjective = spanish_adjective(adjective, head.gender, head.plural)
    noun = join(head.piece, ("that", "que"), statement(event, tense))
    whole = head._replace(piece=noun)
    return finish(being(whole, adjective.en, es_adjective, spanish_be(adjective.copula, head.person, past), past))


CALM = tuple(v for v in lexicon.INTRANSITIVES if v.en in ("rest", "sleep", "sit", "go to bed", "stay", "cry", "return"))


def because(dice: Dice) -> Piece:
    """The boy did not work because he was tired: El niño no trabajó porque estaba cansado."""
    negated = dice.chance(60)
    event = doing(dice)
    if not negated:
        verb = dice.pick(CALM)
        event = complete(dice, verb, some_subject(dice, verb.subjects))
    animate = event.subject.human or event.subject.animal
    if not animate or "state" in event.verb.flags or vague(event.subject.piece):
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
    shown = subject.person == ME or subject in PRONOUNS[:2] or subject == PRONOUNS[4]
    moods = [a for a in PREDICATIVES if a.en in MOODS]
    adjective = dice.pick([a for a in moods if not (shown and a.es.endswith("o"))])
    spanish = spanish_adjective(adjective, subject.gender, subject.plural)
    return f"{past} {adjective.en}", f"{spanish_be('e', subject.person, True)} {spanish}"


MOODS = ("tired", "sick", "sad", "nervous")


MOMENTS = tuple(
    verb
    for verb in lexicon.TRANSITIVES + lexicon.INTRANSITIVES
    if verb.en
    in ("arrive", "wake up", "get up", "return", "see", "enter", "come", "go to bed", "start", "fall", "call")
)


def when_clause(dice: Dice) -> Piece:
    """When the teacher arrived, the students were reading."""
    verb = dice.pick(MOMENTS)
    one, two = complete(dice, verb, some_subject(dice, verb.subjects)), doing(dice)
    while not fits(two, "pastprog") or same_subject(one, two):
        two = doing(dice)
    one, two = (event._replace(subject=voiced(event.subject)) for event in (one, two))
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
    speaker = some_subject(dice, lexicon.nouns_of("grown"))
    verb = dice.pick(SAYING)
    event, tense = doing(dice), dice.pick(("present", "future", "prog", "past"))
    if (
        not fits(event, tense)
        or event.subject.piece.en.startswith(("that", "those"))
        or event.subject.piece == speaker.piece
        or set(event.subject.heads) & set(speaker.heads)
    ):
        return saying(dice)
    return finish(join(statement(Event(speaker, verb), "present"), ("that", "que"), statement(event, tense)))
