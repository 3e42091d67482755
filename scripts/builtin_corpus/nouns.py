"""Noun phrases of the built-in English-Spanish corpus: agreement, determiners, possessors.

The rules that make a translation unique: "you" is tú; "they" is ellos; yo, tú and nosotros are left out and él, ella
and ellos are not, but for two places: after "because" the subject is that of the main clause and goes unsaid, and in
two clauses with two subjects, joined by and, but or when, every pronoun is said. A question puts the verb before its
subject; an adjective follows its noun; persons and all animals but insects take the personal a.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from builtin_corpus import lexicon, morphology
from builtin_corpus.grammar import Dice, Piece, join
from builtin_corpus.lexicon import Adjective, Noun, Verb
from builtin_corpus.morphology import HE, ME, THEY, WE, YOU


class NounPhrase(NamedTuple):
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
    NounPhrase(Piece("I", ""), ME, "m", human=True),
    NounPhrase(Piece("you", ""), YOU, "m", human=True),
    NounPhrase(Piece("he", "él"), HE, "m", human=True),
    NounPhrase(Piece("she", "ella"), HE, "f", human=True),
    NounPhrase(Piece("we", ""), WE, "m", human=True),
    NounPhrase(Piece("they", "ellos"), THEY, "m", human=True),
)
FREQUENT_PRONOUNS = PRONOUNS + 2 * (PRONOUNS[:2] + PRONOUNS[4:5])  # whose verb forms nouns never need

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
POINTING = (("this", "these", "este"), ("that", "those", "ese"))
EXACT_FORMS = {
    "el": ("el", "la", "los", "las"),
    "todo el": ("", "", "todos los", "todas las"),
    "un": ("un", "una", "", ""),
    "este": ("este", "esta", "estos", "estas"),
    "ese": ("ese", "esa", "esos", "esas"),
}
SPANISH_NUMBERS = frozenset(es for _, es in lexicon.NUMBERS)
PERSON_NOUNS = frozenset(lexicon.nouns_of("anyone"))
ANIMAL_NOUNS = frozenset(lexicon.nouns_of("animal"))
KIN = frozenset(lexicon.nouns_of("family"))


def spanish_determiner(form: str, noun: Noun, plural: bool) -> str:
    """The determiner before a noun, "el" and "un" before a stressed a included."""
    if form in ("el", "un") and noun.stressed_a and not plural:
        return form
    if form in SPANISH_NUMBERS:
        return form
    if form in EXACT_FORMS:
        return EXACT_FORMS[form][2 * plural + (noun.gender == "f")]
    return morphology.agree(form, noun.gender, plural)


@cache
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
        piece._replace(nouns=(noun.en,)), THEY if plural else HE, noun.gender, (noun.en,),
        noun.en in PERSON_NOUNS, noun.en in ANIMAL_NOUNS,
    )  # fmt: skip


def spanish_adjective(adjective: Adjective, gender: str, plural: bool) -> str:
    """The Spanish form that agrees; "de madera" never changes."""
    return adjective.es if adjective.es.startswith("de ") else morphology.agree(adjective.es, gender, plural)


ATTRIBUTES = {
    noun: tuple(a for a in lexicon.ADJECTIVES if noun in a.nouns and "p" not in a.flags) for noun in lexicon.BY_ENGLISH
}


def some_determiner(dice: Dice, noun: Noun, plural: bool, known: bool) -> tuple[str, str, str]:
    """A determiner that fits the noun; if `known`, one that points to something definite."""
    if noun.en in KIN:
        known = True
    if "own" in noun.flags and dice.chance(75 if noun.en in KIN else 18):
        en, es = dice.pick(POSSESSIVES)
        return en, en, es
    if known or "single" in noun.flags:
        return DEFINITE if "single" in noun.flags or noun.en in KIN or dice.chance(75) else dice.pick(POINTING)
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


def noun_phrase(dice: Dice, nouns: Sequence[str], plain: bool = False, known: bool = False) -> NounPhrase:
    """A phrase about one of the nouns: any number, any determiner, at times an adjective or a possessor."""
    noun = lexicon.BY_ENGLISH[dice.pick(nouns)]
    plural = not noun.flags & {"mass", "single"} and dice.chance(30)
    attributes = ATTRIBUTES[noun.en]
    adjective = dice.pick(attributes) if attributes and dice.chance(7 if noun.en in KIN else 22) else None
    if plain:
        return common(noun, plural, DEFINITE, adjective)
    if "own" in noun.flags and noun.kind not in ("child", "pet") and dice.chance(6):
        return possessed(dice, noun, plural, adjective)
    return common(noun, plural, some_determiner(dice, noun, plural, known), adjective)


def possessed(dice: Dice, noun: Noun, plural: bool, adjective: Adjective | None) -> NounPhrase:
    """Ana's book, the teacher's new books."""
    owner = name(dice) if dice.chance(40) else common(
        lexicon.BY_ENGLISH[dice.pick(lexicon.nouns_of("grown"))], False, DEFINITE
    )  # fmt: skip
    thing = common(noun, plural, ("", "", ""), adjective)
    article = spanish_determiner("el", noun, plural)
    piece = join((owner.piece.en, article), ("'s", ""), thing.piece, ("", "de"), ("", owner.piece.es))
    return thing._replace(piece=piece._replace(nouns=thing.piece.nouns + owner.piece.nouns))


def voiced(phrase: NounPhrase) -> NounPhrase:
    """The phrase with the pronoun that Spanish leaves out but where two subjects are contrasted: yo, tú, nosotros."""
    spoken = {"I": "yo", "you": "tú", "we": "nosotros"}.get(phrase.piece.en)
    return phrase._replace(piece=phrase.piece._replace(es=spoken)) if spoken else phrase


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
        if first.en in KIN and dice.chance(40):
            one = common(first, False, ("my", "my", "mi"))
            return one._replace(piece=join(one.piece, ("and I", "y yo")), person=WE, gender="m")
        one, two = common(first, False, DEFINITE), common(second, False, DEFINITE)
    gender = "f" if one.gender == two.gender == "f" else "m"
    return NounPhrase(join(one.piece, ("and", "y"), two.piece), THEY, gender, one.heads + two.heads, human=True)


def some_subject(dice: Dice, nouns: Sequence[str], known: bool = False) -> NounPhrase:
    """A subject among the nouns, or, where they are people, a pronoun, a name or a couple."""
    if any(noun in KIN for noun in nouns):
        ticket = dice.below(100)
        if ticket < 38:
            return dice.pick(FREQUENT_PRONOUNS)
        if ticket < 45:
            return name(dice)
        if ticket < 51:
            return couple(dice, nouns)
    return noun_phrase(dice, nouns, known=known)


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
        and "single" not in noun.flags
    ):
        return common(noun, "mass" not in noun.flags, ("", "", ""))
    if noun.en in PERSON_NOUNS and dice.chance(12) and verb.en != "have":
        return name(dice)
    return noun_phrase(dice, (noun.en,))


BARE_VERBS = frozenset(
    ("eat", "buy", "sell", "draw", "write", "need", "want", "have", "make", "prepare", "cut", "plant", "carry", "build")
)
