"""The built-in corpus keeps its promises: size, splits, held-out pairs of words, correct forms, and every byte."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from builtin_corpus import corpus, lexicon
from builtin_corpus.corpus import builtin_examples
from builtin_corpus.morphology import conjugate, gerund, spanish_plural

from transformer_mt.data.builtin import IDENTITY, SPLITS, builtin_pairs

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
# They change together: an identity that stays while a pair changes lets an old cache stand for the new corpus.
CORPUS_SHA256 = "cfefaa1838f673bdef76443f3119c985e05a3c22841ce2738bf8180d30081003"
IDENTITY_SHA256 = "eb30df50b6158892d95808111960f3233c1f273228b4fd7dc7886edbbcf97807"
PAIRS = {split: builtin_pairs(split) for split in SPLITS}
EVERYTHING = [pair for split in SPLITS for pair in PAIRS[split]]


def words(sentence: str) -> list[str]:
    return "".join(c if c.isalpha() else " " for c in sentence.lower()).split()


def digest(pairs: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256("".join(f"{src}\t{tgt}\n" for src, tgt in pairs).encode()).hexdigest()


def test_sizes_and_lengths():
    assert 22_000 <= len(set(PAIRS["train"])) == len(PAIRS["train"]) <= 24_000
    assert len(PAIRS["validation"]) == len(PAIRS["test"]) == 1_000
    for side in (0, 1):
        lengths = Counter(len(words(pair[side])) for pair in EVERYTHING)
        assert set(lengths) <= set(range(3, 21))
        assert sum(lengths[n] for n in range(5, 13)) > len(EVERYTHING) // 2
        assert sum(lengths[n] for n in range(13, 21)) > len(EVERYTHING) // 30


def test_one_translation_each_and_no_sentence_in_two_splits():
    for side in (0, 1):
        sentences = [tuple(words(pair[side])) for pair in EVERYTHING]
        assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("side", [0, 1])
def test_vocabulary(side: int):
    train = Counter(word for pair in PAIRS["train"] for word in words(pair[side]))
    held_out = {word for split in ("validation", "test") for pair in PAIRS[split] for word in words(pair[side])}
    assert len(train.keys() | held_out) >= 800
    assert [word for word in held_out if train[word] < 3] == []
    assert sum(count >= 3 for count in train.values()) > 0.9 * len(train)


def test_the_cat_sat_is_learnt():
    assert ("The cat sat", "El gato se sentó") in PAIRS["train"]


def test_punctuation_agrees():
    ends = Counter()
    for src, tgt in EVERYTHING:
        assert src[0].isupper()
        assert tgt.lstrip("¿¡")[0].isupper()
        end = src[-1] if src[-1] in ".?!" else ""
        assert tgt.endswith(end)
        assert tgt[-1].isalpha() == (not end)
        assert tgt[0] == {"?": "¿", "!": "¡"}.get(end, tgt[0])
        assert end in ("?", "!") or tgt[0] not in "¿¡"
        ends[end] += 1
    statements = ends["."] + ends[""]
    assert 0.12 < ends[""] / statements < 0.18
    assert ends["?"] > 2_000
    assert ends["!"] > 200


def test_test_split_pairs_nouns_and_verbs_that_train_never_pairs():
    seen = {pair for example in builtin_examples("train") for pair in example.noun_verb_pairs}
    unseen = [example for example in builtin_examples("test") if example.noun_verb_pairs - seen]
    assert len(unseen) >= 300


def test_held_out_words_never_meet_in_any_training_sentence():
    """Knows nothing of the grammar: looks for the English forms of both words side by side in a sentence."""
    where = defaultdict(set)
    for index, (src, _) in enumerate(PAIRS["train"]):
        for word in words(src):
            where[word].add(index)
    verbs = lexicon.TRANSITIVES + lexicon.INTRANSITIVES + lexicon.DATIVES + lexicon.PLACINGS
    pasts = {verb.en.split()[0]: verb.past.split()[0] for verb in verbs}

    def sentences_with(forms: set[str]) -> set[int]:
        return set().union(*(where[form] for form in forms))

    def never_meet(noun: str, lemma: str) -> bool:
        base = lemma.split()[0]
        stems = {base, base.removesuffix("e"), base + base[-1]}
        forms = {base, pasts.get(base, base), base + "s", base + "es", base[:-1] + "ies", *(s + "ing" for s in stems)}
        nouns = sentences_with({noun, lexicon.BY_ENGLISH[noun].en_plural})
        both_known = len(nouns) >= 20 and len(sentences_with(forms)) >= 20
        return both_known and not nouns & sentences_with(forms)

    unseen = [
        e for e in builtin_examples("test") if any(never_meet(*pair) for pair in e.noun_verb_pairs if "be" not in pair)
    ]
    assert len(unseen) >= 300


def test_articles_contractions_and_conjunctions():
    for src, tgt in EVERYTHING:
        assert not re.search(r"\ba (?:[aeio]|umbrella|uncle)|\ban (?![aeio]|umbrella|uncle|honest)", src.lower()), src
        assert not re.search(r"\b(?:a|de) el\b|\by h?i|\s[,.?!]|\s\s", tgt.lower()), tgt
        assert not re.search(r"\b(?:la|una) (?:agua|águila|hacha|arpa|hada)\b", tgt.lower()), tgt
        assert not re.search(r"\b(\w+) \1\b", src.lower() + "\n" + tgt.lower()), (src, tgt)
    spanish = "\n".join(tgt for _, tgt in EVERYTHING).lower()
    for phrase in (" al ", " del ", " e i", "el agua", "un águila", "esa águila", " se sentó", " no "):
        assert phrase in spanish, phrase


def test_gender_and_number_agree_between_article_and_noun():
    gender: dict[str, set[str]] = defaultdict(set)
    for noun in lexicon.BY_ENGLISH.values():
        masculine = noun.gender == "m"
        if not noun.stressed_a:
            gender[noun.es] |= {"el", "un", "este", "ese"} if masculine else {"la", "una", "esta", "esa"}
        gender[noun.es_plural] |= {"los", "estos", "esos"} if masculine else {"las", "estas", "esas"}
    determiners = {d for allowed in gender.values() for d in allowed}
    checked = 0
    for _, tgt in EVERYTHING:
        tokens = words(tgt)
        for determiner, noun in pairwise(tokens):
            if determiner in determiners and noun in gender:
                assert determiner in gender[noun], tgt
                checked += 1
    assert checked > 20_000


@pytest.mark.parametrize(
    ("infinitive", "tense", "forms"),
    [
        ("tener", "present", "tengo tienes tiene tenemos tienen"),
        ("dormir", "past", "dormí dormiste durmió dormimos durmieron"),
        ("elegir", "present", "elijo eliges elige elegimos eligen"),
        ("perseguir", "past", "perseguí perseguiste persiguió perseguimos persiguieron"),
        ("traer", "past", "traje trajiste trajo trajimos trajeron"),
        ("hacer", "past", "hice hiciste hizo hicimos hicieron"),
        ("leer", "past", "leí leíste leyó leímos leyeron"),
        ("construir", "past", "construí construiste construyó construimos construyeron"),
        ("empezar", "past", "empecé empezaste empezó empezamos empezaron"),
        ("tocar", "past", "toqué tocaste tocó tocamos tocaron"),
        ("llegar", "past", "llegué llegaste llegó llegamos llegaron"),
        ("jugar", "present", "juego juegas juega jugamos juegan"),
        ("conducir", "present", "conduzco conduces conduce conducimos conducen"),
        ("ser", "imperfect", "era eras era éramos eran"),
        ("poner", "future", "pondré pondrás pondrá pondremos pondrán"),
        ("enviar", "present", "envío envías envía enviamos envían"),
    ],
)
def test_irregular_verbs(infinitive: str, tense: str, forms: str):
    assert conjugate(infinitive, tense) == tuple(forms.split())


def test_gerunds_and_plurals():
    assert [gerund(verb) for verb in ("leer", "dormir", "venir", "oír", "comer", "construir")] == [
        "leyendo", "durmiendo", "viniendo", "oyendo", "comiendo", "construyendo",
    ]  # fmt: skip
    assert [spanish_plural(noun) for noun in ("lápiz", "jardín", "árbol", "autobús", "sofá", "rey", "joven")] == [
        "lápices", "jardines", "árboles", "autobuses", "sofás", "reyes", "jóvenes",
    ]  # fmt: skip


def test_unknown_split_is_refused():
    with pytest.raises(AssertionError, match="no split is called 'dev'"):
        builtin_pairs("dev")


def test_every_byte_is_pinned():
    assert digest(EVERYTHING) == CORPUS_SHA256
    assert hashlib.sha256(" ".join(IDENTITY).encode()).hexdigest() == IDENTITY_SHA256


@pytest.mark.parametrize("split", SPLITS)
def test_the_shipped_file_is_what_the_grammar_makes(split: str):
    assert corpus.builtin_pairs(split) == PAIRS[split]


@pytest.mark.slow
def test_another_process_with_other_hashes_gives_the_same_corpus():
    code = (
        "import hashlib; from builtin_corpus.corpus import SPLITS, builtin_pairs;"
        "text = ''.join(f'{s}\\t{t}\\n' for split in SPLITS for s, t in builtin_pairs(split));"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(SCRIPTS)}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == CORPUS_SHA256
