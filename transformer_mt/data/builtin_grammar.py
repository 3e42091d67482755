"""Phrases and clauses of the built-in English-Spanish corpus: agreement, tenses, word order.

The rules that make a translation unique: "you" is tú; "they" is ellos; yo, tú and nosotros are left out and él, ella
and ellos are not (but for a clause after "because", whose subject is that of the main clause); a question puts the
verb before its subject; an adjective follows its noun; persons and larger animals take the personal a.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from transformer_mt.data import builtin_lexicon as lexicon
from transformer_mt.data import builtin_morphology as morphology
from transformer_mt.data.builtin_lexicon import Adjective, Noun, Verb
from transformer_mt.data.builtin_morphology import HE, THEY, WE, YOU, I

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


@dataclass(frozen=True)
class Piece:
    """Some words in both languages, the lemmas in them, and which noun is subject or object of which verb."""

    en: str = ""
    es: str = ""
    nouns: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()


NOTHING = Piece()


def join(*parts: Piece | tuple[str, str]) -> Piece:
    """The parts side by side in both languages."""
    pieces = [part if isinstance(part, Piece) else Piece(*part) for part in parts]
    return Piece(
        " ".join(piece.en for piece in pieces if piece.en),
        " ".join(piece.es for piece in pieces if piece.es),
        tuple(noun for piece in pieces for noun in piece.nouns),
        tuple(verb for piece in pieces for verb in piece.verbs),
        tuple(pair for piece in pieces for pair in piece.pairs),
    )


def finish(piece: Piece, end: str = ".") -> Piece:
    """The whole sentence: articles, contractions, capital letters, and the mark at its end."""
    en = re.sub(r"\ba (?=(?!uni|use)[aeiou]|honest)", "an ", piece.en).replace(" ,", ",").replace(" 's", "'s")
    es = re.sub(r"\b(a|de) el\b", lambda match: "al" if match[1] == "a" else "del", piece.es).replace(" ,", ",")
    es = re.sub(r"\by (?=h?i(?!e))", "e ", es, flags=re.IGNORECASE)
    es = es[0].upper() + es[1:]
    return replace(piece, en=en[0].upper() + en[1:] + end, es={"?": "¿", "!": "¡"}.get(end, "") + es + end)


# Noun phrases ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NounPhrase:
    """A noun, a pronoun or a name with what verbs and adjectives must know of it."""

    piece: Piece
    person: int
    gender: str
    heads: tuple[str, ...] = ()
    human: bool = False
    animal: bool = False

    @property
    def plural(self) -> bool:
        """Whether it stands for more than one."""
        return self.person in (WE, THEY)


PRONOUNS = (
    NounPhrase(Piece("I", ""), I, "m", human=True),
    NounPhrase(Piece("you", ""), YOU, "m", human=True),
    NounPhrase(Piece("he", "él"), HE, "m", human=True),
    NounPhrase(Piece("she", "ella"), HE, "f", human=True),
    NounPhrase(Piece("we", ""), WE, "m", human=True),
    NounPhrase(Piece("they", "ellos"), THEY, "m", human=True),
)

# English singular and plural, Spanish masculine singular (agrees), weight; an empty form: not in that number.
DETERMINERS = (
    (("the", "the", "el"), 40),
    (("a", "", "un"), 14),
    (("this", "these", "este"), 6),
    (("that", "those", "ese"), 5),
    (("another", "", "otro"), 2),
    (("", "many", "mucho"), 3),
    (("", "some", "alguno"), 3),
    (("", "several", "vario"), 2),
    (("", "all the", "todo el"), 2),
    (("", "NUMBER", ""), 9),
)
POSSESSIVES = (("my", "mi"), ("your", "tu"), ("his", "su"), ("her", "su"), ("our", "nuestro"), ("their", "su"))
DEFINITE = ("the", "the", "el")
EXACT_FORMS = {
    "el": ("el", "la", "los", "las"),
    "todo el": ("", "", "todos los", "todas las"),
    "un": ("un", "una", "", ""),
    "este": ("este", "esta", "estos", "estas"),
    "ese": ("ese", "esa", "esos", "esas"),
}
SPANISH_NUMBERS = frozenset(es for _, es in lexicon.NUMBERS)
PERSON_NOUNS = frozenset(lexicon.nouns_of("person"))
ANIMAL_NOUNS = frozenset(lexicon.nouns_of("animal"))
KIN = frozenset(lexicon.nouns_of("kin"))


def spanish_determiner(form: str, noun: Noun, plural: bool) -> str:
    """The determiner before a noun, "el" and "un" before a stressed a included."""
    if form in ("el", "un") and noun.stressed_a and not plural:
        return form
    if form in SPANISH_NUMBERS:
        return form
    if form in EXACT_FORMS:
        return EXACT_FORMS[form][2 * plural + (noun.gender == "f")]
    return morphology.agree(form, noun.gender, plural)


def common(
    noun: Noun, plural: bool, determiner: tuple[str, str, str], adjective: Adjective | None = None
) -> NounPhrase:
    """A phrase of determiner, noun and perhaps adjective."""
    en, es = (determiner[plural], spanish_determiner(determiner[2], noun, plural) if determiner[2] else "")
    en_noun, es_noun = (noun.en_plural, noun.es_plural) if plural else (noun.en, noun.es)
    described = ("", "")
    if adjective is not None:
        described = (adjective.en, spanish_adjective(adjective, noun.gender, plural))
    piece = join((en, es), (described[0], ""), (en_noun, es_noun), ("", described[1]))
    return NounPhrase(
        replace(piece, nouns=(noun.en,)), THEY if plural else HE, noun.gender, (noun.en,),
        noun.en in PERSON_NOUNS, noun.en in ANIMAL_NOUNS,
    )  # fmt: skip


def spanish_adjective(adjective: Adjective, gender: str, plural: bool) -> str:
    """The Spanish form that agrees; "de madera" never changes."""
    return adjective.es if adjective.es.startswith("de ") else morphology.agree(adjective.es, gender, plural)


ATTRIBUTES = {
    noun: tuple(a for a in lexicon.ADJECTIVES if noun in a.nouns and "p" not in a.flags) for noun in lexicon.BY_ENGLISH
}


def some_determiner(dice: Dice, noun: Noun, plural: bool) -> tuple[str, str, str]:
    """A determiner that fits the noun."""
    if "unique" in noun.flags:
        return DEFINITE
    if "own" in noun.flags and dice.chance(60 if noun.kind == "kin" else 18):
        en, es = dice.pick(POSSESSIVES)
        return en, en, es
    choice = DEFINITE
    for _ in range(8):
        choice = dice.weighted(DETERMINERS)
        if choice[plural] and not ("mass" in noun.flags and choice[0] in ("a", "another")):
            break
    else:
        return DEFINITE
    if choice[1] == "NUMBER":
        return ("", *dice.pick(lexicon.NUMBERS)) if plural else DEFINITE
    return choice


def noun_phrase(dice: Dice, nouns: Sequence[str], plain: bool = False) -> NounPhrase:
    """A phrase about one of the nouns: any number, any determiner, at times an adjective or a possessor."""
    noun = lexicon.BY_ENGLISH[dice.pick(nouns)]
    plural = not noun.flags & {"mass", "unique"} and dice.chance(30)
    attributes = ATTRIBUTES[noun.en]
    adjective = dice.pick(attributes) if attributes and dice.chance(7 if noun.kind == "kin" else 22) else None
    if plain:
        return common(noun, plural, DEFINITE, adjective)
    if "own" in noun.flags and noun.kind not in ("child", "pet") and dice.chance(6):
        return possessed(dice, noun, plural, adjective)
    return common(noun, plural, some_determiner(dice, noun, plural), adjective)


def possessed(dice: Dice, noun: Noun, plural: bool, adjective: Adjective | None) -> NounPhrase:
    """Ana's book, the teacher's new books."""
    owner = name(dice) if dice.chance(40) else common(
        lexicon.BY_ENGLISH[dice.pick(lexicon.nouns_of("grown"))], False, DEFINITE
    )  # fmt: skip
    thing = common(noun, plural, ("", "", ""), adjective)
    article = spanish_determiner("el", noun, plural)
    piece = join((owner.piece.en, article), ("'s", ""), thing.piece, ("", "de"), ("", owner.piece.es))
    return replace(thing, piece=replace(piece, nouns=thing.piece.nouns + owner.piece.nouns))


def name(dice: Dice) -> NounPhrase:
    """A first name."""
    first, gender = dice.pick(lexicon.NAMES)
    return NounPhrase(Piece(first, first), HE, gender, human=True)


def couple(dice: Dice, nouns: Sequence[str]) -> NounPhrase:
    """Two subjects, joined: the boy and the girl, Pedro and Isabel, my father and I."""
    if dice.chance(30):
        one, two = name(dice), name(dice)
        while one == two:
            two = name(dice)
    else:
        people = [noun for noun in nouns if noun in PERSON_NOUNS]
        first = lexicon.BY_ENGLISH[dice.pick(people)]
        second = lexicon.BY_ENGLISH[dice.pick(people)]
        while first == second:
            second = lexicon.BY_ENGLISH[dice.pick(people)]
        if first.kind == "kin" and dice.chance(40):
            one = common(first, False, ("my", "my", "mi"))
            return replace(one, piece=join(one.piece, ("and I", "y yo")), person=WE, gender="m")
        one, two = common(first, False, DEFINITE), common(second, False, DEFINITE)
    gender = "f" if one.gender == two.gender == "f" else "m"
    return NounPhrase(join(one.piece, ("and", "y"), two.piece), THEY, gender, one.heads + two.heads, human=True)


def some_subject(dice: Dice, nouns: Sequence[str], pronouns: bool = True) -> NounPhrase:
    """A subject among the nouns, or, where they are people, a pronoun, a name or a couple."""
    if any(noun in KIN for noun in nouns):
        ticket = dice.below(100)
        if ticket < 26 and pronouns:
            return dice.pick(PRONOUNS)
        if ticket < 34:
            return name(dice)
        if ticket < 41:
            return couple(dice, nouns)
    return noun_phrase(dice, nouns)


def as_object(phrase: NounPhrase, verb: Verb) -> Piece:
    """The phrase after its verb, with the preposition or the personal a that Spanish wants."""
    animate = (phrase.human and verb.en != "have") or (phrase.animal and "plain" not in verb.flags)
    preposition = verb.preposition or ("a" if animate else "")
    return join(("", preposition), phrase.piece)


def some_object(dice: Dice, verb: Verb) -> NounPhrase:
    """An object of the verb; a mass or a plural may stand without a determiner ("drinks milk")."""
    noun = lexicon.BY_ENGLISH[dice.pick(verb.objects)]
    bare_plural = noun.en not in PERSON_NOUNS | ANIMAL_NOUNS and dice.chance(7) and verb.en in BARE_VERBS
    if (
        (bare_plural or ("mass" in noun.flags and dice.chance(30)))
        and not verb.preposition
        and "unique" not in noun.flags
    ):
        return common(noun, "mass" not in noun.flags, ("", "", ""))
    if noun.en in PERSON_NOUNS and dice.chance(12) and verb.en != "have":
        return name(dice)
    return noun_phrase(dice, (noun.en,))


BARE_VERBS = frozenset("eat buy sell draw write need want have make prepare cut plant carry build paint wear".split())

# Verb phrases ----------------------------------------------------------------------------------------------------

REFLEXIVES = ("me", "te", "se", "nos", "se")
# tense: the English auxiliary and Spanish verb before an infinitive
MODALS = {"can": "poder", "must": "deber", "want": "querer", "going": "ir"}
PAST_TENSES = frozenset({"past", "pastprog"})


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


def spanish_verb(verb: Verb, tense: str, person: int, clitic: str = "") -> str:
    """The verb with its pronouns: se sentó, la está comiendo, quiere sentarse."""
    infinitive = verb.es
    if morphology.reflexive(infinitive):
        infinitive, clitic = infinitive[:-2], REFLEXIVES[person]
    if tense in MODALS:
        helper = morphology.conjugate(MODALS[tense], "present")[person]
        return f"{helper} a {infinitive}{clitic}" if tense == "going" else f"{helper} {infinitive}{clitic}"
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
