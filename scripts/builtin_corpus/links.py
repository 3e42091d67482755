"""Which words of a sentence pair of the built-in corpus translate each other, by the tables of its grammar.

Links are sure or possible, as in hand-aligned text (Och and Ney 2003). A link is sure where the tables name both words
as translations of each other and nothing else of the sentence can be meant, and between the determiners of two nouns of
which that is so. Possible are, besides, the words around a verb (auxiliaries, pronouns, particles), a word without a
translation of its own and those of its noun, and all words of a phrase that is translated as a whole.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache

from builtin_corpus import being, events, lexicon, morphology
from builtin_corpus.lexicon import Verb

Link = tuple[int, int]
Links = set[Link]

TENSES = ("present", "past", "imperfect", "future")
BE = ("be", "am", "is", "are", "was", "were")
AUXILIARIES = frozenset(("do", "does", "did", "will", "can", "cannot", "must", "want", "wants", "going", "to", *BE))
PRONOUNS = frozenset(("i", "you", "he", "she", "we", "they", "it", "them", "there"))
CLITICS = frozenset(("me", "te", "se", "nos", "le", "les", "lo", "la", "los", "las", "a"))
DETERMINERS = (
    ("the", "el la los las al del"), ("a", "un una"), ("an", "un una"), ("this", "este esta"), ("these", "estos estas"),
    ("that", "ese esa"), ("those", "esos esas"), ("another", "otro otra"), ("many", "muchos muchas cuántos cuántas"),
    ("some", "algunos algunas"), ("several", "varios varias"), ("my", "mi mis"), ("your", "tu tus"),
    ("his", "su sus"), ("her", "su sus"), ("their", "su sus"), ("our", "nuestro nuestra nuestros nuestras"),
    ("all", "todos todas"),
)  # fmt: skip
WORDS = (
    ("and", "y e"), ("but", "pero"), ("because", "porque"), ("when", "cuando cuándo"), ("who", "que quién"),
    ("that", "que"), ("than", "que"), ("with", "con"), ("in", "en"), ("on", "en"), ("at", "en"), ("to", "a al"),
    ("not", "no"), ("cannot", "no"), ("he", "él"), ("she", "ella"), ("they", "ellos"), ("i", "yo"), ("you", "tú"),
    ("we", "nosotros"), ("very", "muy"), ("more", "más"), ("where", "dónde adónde"), ("what", "qué"),
    ("always", "siempre"), ("never", "nunca"), ("there", "hay había"), ("old", "años"),
    (".", "."), ("?", "?"), ("!", "!"), (",", ","),
)  # fmt: skip
PHRASES = (
    ("often", "a menudo"), ("sometimes", "a veces"), ("please", "por favor"), ("why", "por qué"), ("?", "¿"),
    ("!", "¡"), ("years old", "años"), ("s", "de"), ("'", "de"), ("how many", "cuántos"), ("how many", "cuántas"),
    ("all the", "todos los"), ("all the", "todas las"), ("it", "lo"), ("it", "la"), ("them", "los"), ("them", "las"),
    *being.FEELINGS, *events.NEARBY, ("under", "debajo de"), *events.DAY_PARTS,
    *(couple for times in events.TIMES.values() for couple in times),
    *(couple for manners in events.MANNERS.values() for couple in manners),
)  # fmt: skip
MODALS = {"can": "poder", "cannot": "poder", "must": "deber", "want": "querer", "wants": "querer", "going": "ir"}


def links(src: Sequence[str], tgt: Sequence[str]) -> tuple[Links, Links]:
    """The sure and the possible links of a pair, given as words in lower case. Sure links are possible too."""
    sure, unsure = _by_words(src, tgt)
    sure |= _determiners(src, tgt, sure)
    possible = sure | unsure | set(_phrases(src, tgt))
    possible |= _verb_groups(src, tgt, sure) | _beside_nouns(src, tgt, sure)
    return sure, possible


@cache
def _translations() -> dict[str, frozenset[str]]:
    """The Spanish words of each English one, determiners apart."""
    found: dict[str, set[str]] = defaultdict(set)
    for en, es in (*lexicon.NUMBERS, *((first, first) for first, _ in lexicon.NAMES), *WORDS):
        found[en.lower()] |= set(es.lower().split())
    for noun in lexicon.BY_ENGLISH.values():
        found[noun.en].add(noun.es)
        found[noun.en_plural].add(noun.es_plural)
    for adjective in lexicon.ADJECTIVES:
        last = adjective.es.split()[-1]
        agreeing = {morphology.agree(last, gender, plural) for gender in "mf" for plural in (False, True)}
        for en in (adjective.en, morphology.comparative(adjective.en)):
            found[en] |= {last} if " " in adjective.es else agreeing
    for verb in _verbs():
        for en in _english_forms(verb):
            found[en] |= _spanish_forms(verb.es)
    for en, infinitive in MODALS.items():
        found[en] |= set(morphology.conjugate(infinitive, "present"))
    for en in BE[1:]:
        for infinitive in ("ser", "estar", "tener"):
            found[en] |= {
                form for tense in ("present", "imperfect") for form in morphology.conjugate(infinitive, tense)
            }
    return {en: frozenset(es) for en, es in found.items()}


def _verbs() -> Iterator[Verb]:
    yield from lexicon.TRANSITIVES + lexicon.INTRANSITIVES + lexicon.DATIVES + lexicon.PLACINGS
    for en, past, es in (("like", "liked", "gustar"), ("think", "thought", "creer"), ("know", "knew", "saber")):
        yield Verb(en, past, es, "", (), (), (), frozenset())
    yield Verb("say", "said", "decir", "", (), (), (), frozenset())


def _english_forms(verb: Verb) -> set[str]:
    first = verb.en.split()[0]
    return {first, verb.past.split()[0], morphology.english_third(first), morphology.english_ing(first)}


@cache
def _spanish_forms(infinitive: str) -> frozenset[str]:
    base = infinitive.removesuffix("se") if morphology.reflexive(infinitive) else infinitive
    forms = {base, morphology.gerund(base)}
    for tense in TENSES:
        with suppress(KeyError):  # the grammar lacks tenses that it never draws
            forms |= set(morphology.conjugate(base, tense))
    return frozenset(forms)


@cache
def _verb_words() -> tuple[frozenset[str], frozenset[str]]:
    """All forms of verbs, English and Spanish."""
    en = {form for verb in _verbs() for form in _english_forms(verb)} | set(BE)
    es = {form for verb in _verbs() for form in _spanish_forms(verb.es)}
    return frozenset(en), frozenset(es | {form for word in BE[1:] for form in _translations()[word]})


@cache
def _noun_words() -> frozenset[str]:
    return frozenset(form for noun in lexicon.BY_ENGLISH.values() for form in (noun.en, noun.en_plural))


def _by_words(src: Sequence[str], tgt: Sequence[str]) -> tuple[Links, Links]:
    """The links that the tables name: sure where neither word has another, else possible. Where as many words of one
    side as of the other have the same ones, they are in order.
    """
    of_src = {i: [j for j, es in enumerate(tgt) if es in _translations().get(en, ())] for i, en in enumerate(src)}
    of_tgt = {j: [i for i in of_src if j in of_src[i]] for j in range(len(tgt))}
    sure, unsure = set(), set()
    for i, partners in of_src.items():
        for j in partners:
            if partners == [j] and of_tgt[j] == [i]:
                sure.add((i, j))
            elif len(of_tgt[j]) != len(partners) or of_tgt[j].index(i) == partners.index(j):
                unsure.add((i, j))
    return sure, unsure


def _determiners(src: Sequence[str], tgt: Sequence[str], sure: Links) -> Links:
    """Those before nouns that are surely linked; in English an adjective may stand between."""
    partners = {en: frozenset(es.split()) for en, es in DETERMINERS}
    found = set()
    for i, j in sure:
        if src[i] not in _noun_words() or j == 0:
            continue
        for place in (i - 1, i - 2):
            if place >= 0 and tgt[j - 1] in partners.get(src[place], ()):
                found.add((place, j - 1))
                break
    return found


def _phrases(src: Sequence[str], tgt: Sequence[str]) -> Iterator[Link]:
    for en, es in PHRASES:
        for i in _places(en.split(), src):
            for j in _places(es.split(), tgt):
                yield from ((a, b) for a in range(i, i + len(en.split())) for b in range(j, j + len(es.split())))


def _places(phrase: Sequence[str], words: Sequence[str]) -> Iterator[int]:
    return (i for i in range(len(words)) if list(words[i : i + len(phrase)]) == list(phrase))


def _verb_groups(src: Sequence[str], tgt: Sequence[str], sure: Links) -> Links:
    """Every word of an English verb's group with every one of its Spanish verb's."""
    en_verbs, es_verbs = _verb_words()
    verbs = [(i, j) for i, j in sure if src[i] in en_verbs and tgt[j] in es_verbs]
    if not verbs:
        return set()
    particles = {word for verb in _verbs() for word in verb.en.split()[1:]}
    linked_src, linked_tgt = {i for i, _ in sure}, {j for _, j in sure}
    groups = {link: ({link[0]}, {link[1]}) for link in verbs}
    for side, words, linked, group in (
        (0, src, linked_src, AUXILIARIES | PRONOUNS | particles | en_verbs),
        (1, tgt, linked_tgt, CLITICS | es_verbs),
    ):
        for place, word in enumerate(words):
            if word in group and place not in linked:
                groups[_nearest(verbs, side, place)][side].add(place)
    return {(i, j) for en, es in groups.values() for i in en for j in es}


def _nearest(found: Iterable[Link], side: int, place: int) -> Link:
    return min(found, key=lambda link: abs(link[side] - place))


def _beside_nouns(src: Sequence[str], tgt: Sequence[str], sure: Links) -> Links:
    """A word that has no sure link and is none of a verb, before a noun or its adjective, with the words of that noun's
    phrase.
    """
    names = {first.lower() for first, _ in lexicon.NAMES}
    heads = sorted(link for link in sure if src[link[0]] in _noun_words() | names)
    found = set()
    for side, words in ((0, src), (1, tgt)):
        for place in set(range(len(words))) - {link[side] for link in sure}:
            head = next((link for link in heads if 0 < link[side] - place <= 3), None)
            if head is None or (side == 0 and words[place] in AUXILIARIES - {"to"} | PRONOUNS):
                continue
            for link in sure:
                if (
                    abs(link[0] - head[0]) + abs(link[1] - head[1]) <= 3
                    and max(abs(link[0] - head[0]), abs(link[1] - head[1])) <= 2
                ):
                    found.add((place, link[1]) if side == 0 else (link[0], place))
    return found
