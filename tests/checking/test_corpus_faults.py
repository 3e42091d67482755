"""Each way to find a fault beside cases worked out by hand, brute force, or another source of the same knowledge."""

import itertools
import random
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import section, tables
from planted_faults import sources_of_pairs

from transformer_mt.checking import reading
from transformer_mt.checking.faults import languages, pair_texts
from transformer_mt.checking.faults.duplicates import duplicate_flags
from transformer_mt.checking.faults.leaks import LEAST_WORDS, NEAR, HeldOut
from transformer_mt.checking.faults.names import count_names, names_in, other_names
from transformer_mt.checking.faults.pair_texts import faults_of_pair, letters_of
from transformer_mt.checking.faults.ratios import Bands
from transformer_mt.checking.faults.rules import BITS, RULES, names_of
from transformer_mt.checking.faults.scripts import SCRIPTS, script_counts
from transformer_mt.checking.matching import Stretch
from transformer_mt.checking.reading import read_blocks
from transformer_mt.checking.shifts import shifted_parts
from transformer_mt.checking.viterbi import likeliest_states
from transformer_mt.errors import UserError


def faults(src: str, tgt: str, max_words: int = 100) -> list[str]:
    return names_of(faults_of_pair(src, tgt, (letters_of(src), letters_of(tgt)), max_words))


def test_the_table_of_the_docs_is_that_of_the_rules() -> None:
    (table,) = tables(section("docs/data_check.md", "The faults"))
    assert table[1:] == [[f"`{rule.name}`", rule.says, rule.found] for rule in RULES]


@pytest.mark.parametrize(
    ("src", "tgt", "found"),
    [
        ("The cat.", "El gato.", []),
        ("The cat.", "\u200b\t", ["blank"]),
        ("The cat.", "…", ["no_words"]),
        ("word " * 101, "El gato.", ["too_long", "repetition"]),
        ("漢" * 201, "El gato.", ["too_long", "repetition"]),
        ("漢字" * 90, "", ["blank"]),
        ("The black cat.", "the BLACK cat", ["copy"]),
        ("No.", "No.", []),
        ("Room 12.", "Cuarto 21.", ["numbers"]),
        ("It is 8.25 p.m.", "Es ist 20.25 Uhr.", []),
        ("1,000.50 dollars", "1.000,50 Dollar", []),
        ("Seven of ٧", "7 de siete", []),
        ("in the 1990s", "in den 90ern", []),
        ("two men", "2 hombres", []),
        ("a <b>cat</b>", "un gato", ["markup"]),
        ("3 < 4 and 5 > 4", "3 < 4 y 5 > 4", []),
        ("Rock &amp; Roll", "Rock y Roll", ["markup"]),
        ("small", "pequeÃ±o", ["encoding"]),
        ("it’s", "itâ€™s", ["encoding"]),
        ("Spain", "Espa?a", ["encoding"]),
        ("really?", "¿sí?Sí", []),
        ("see www.a.de/?a?b=c", "mira www.a.de/?a?b=c", []),
        ("Ångström, Ärger, âge", "À Âge", []),
        ("a\ufffdb", "Ein B", ["encoding"]),
        ("He said \x93hello\x94", "Me dijo hola", ["encoding"]),
        ("small", "pequen\u0303o", ["mixed_forms"]),
        ("He said no no no no.", "Él dijo que no.", ["repetition"]),
        ("ha ha ha ha", "ja ja ja ja", []),
        ("school", "\u0441ierto", ["script"]),  # a Cyrillic letter before Latin ones
    ],
)
def test_what_a_pair_shows_by_itself(src: str, tgt: str, found: list[str]) -> None:
    assert faults(src, tgt) == found


def test_a_long_line_takes_no_long_time() -> None:
    """Nothing looks at more than the first characters, whatever a line holds."""
    assert faults("ab" * 400_000, "x", 100) == ["repetition"]
    assert pair_texts.MOST_READ < 100_000


def same_number(a: int, b: int) -> bool:
    """The rule of `numbers`, for two of them."""
    if a == b or (max(a, b) <= 24 and abs(a - b) == 12) or abs(a - b) == 1200:
        return True
    one, other = sorted((str(a), str(b)), key=len)
    ends = len(one) > 1 and other.endswith(one)
    return len(one) < len(other) and (ends or other.rstrip("0") == one.rstrip("0") != "")


NUMBERS = st.sampled_from([0, 1, 5, 8, 12, 13, 20, 24, 25, 36, 90, 100, 110, 125, 825, 1250, 1990, 2025, 12500, 13700])


@settings(max_examples=500)
@given(st.lists(NUMBERS, max_size=5), st.lists(NUMBERS, max_size=5))
def test_numbers_that_are_looked_up_are_those_of_the_rule(src: list[int], tgt: list[int]) -> None:
    only = [
        sorted({n for n in one if not any(same_number(n, m) for m in other)}) for one, other in ((src, tgt), (tgt, src))
    ]
    texts = [" ".join(map(str, numbers)) for numbers in (src, tgt)]
    assert pair_texts.other_numbers(*texts) == (tuple(only) if all(only) else None)


def test_numbers_of_a_long_line_are_not_compared_each_with_each() -> None:
    src, tgt = (" ".join(str(10**6 + 7 * number + side) for number in range(2_000)) for side in (0, 1))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = pair_texts.other_numbers(src, tgt)
    finally:
        sys.setprofile(None)
    assert found is not None
    assert len(found[0]) == len(found[1]) > 1_000
    assert calls < 2_000 * 2_000


# No letter of Latin-1: with two control characters behind it, that would be UTF-8 read wrongly.
PARTS = ["a", "?", "ł", "=", "://", "www.", " ", "\t", "\x1c", "\x01", "\x85", "\ufffd"]


@given(st.lists(st.sampled_from(PARTS), max_size=14))
def test_a_question_mark_of_an_address_is_no_damage(parts: list[str]) -> None:
    """As the words without an address show it by themselves."""
    text = "".join(parts)
    words = regex.split(r"(\s+)", text)
    rest = "".join(" " if any(sign in word for sign in ("=", "://", "www.")) else word for word in words)
    first = regex.search(r"\ufffd|\p{L}\?\p{Ll}|[\x00-\x08\x0e-\x1f\x7f-\x9f]", text)
    if first and "?" in first[0]:
        first = regex.search(r"\ufffd|\p{L}\?\p{Ll}|[\x00-\x08\x0e-\x1f\x7f-\x9f]", rest)
    assert pair_texts.misread(text) == (first[0] if first else None)
    assert pair_texts.misread("a?" * 10_000) == "a?a"


def test_the_ranges_of_scripts_are_those_of_unicode() -> None:
    """A letter's own name begins with that of its script."""
    named = {"CJK": "Han", "HANGUL": "Hangul", "IDEOGRAPHIC": "Han"}
    names = {script.upper(): script for script in SCRIPTS if script} | named
    wrong = []
    for point in itertools.chain(range(0x41, 0x3000), range(0x3041, 0xA000, 7), range(0xAC00, 0xD7A3, 97)):
        letter = chr(point)
        first = unicodedata.name(letter, "").split(" ")[0].split("-")[0]
        if unicodedata.category(letter) in ("Lu", "Ll", "Lo") and first in names:
            counts = script_counts([letter])[0]
            if counts[SCRIPTS.index(names[first])] == 0 and counts.sum() > 0:
                wrong.append(letter)
    assert wrong == []


def test_scripts_of_texts() -> None:
    counts = script_counts(["The cat", "", "Η γάτα 12!", "猫です"])
    found = [{SCRIPTS[i] for i in np.flatnonzero(row)} for row in counts]
    assert found == [{"Latin"}, set(), {"Greek"}, {"Han", "Hiragana"}]


def test_duplicates_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 6, (3, 200)).astype(np.uint64)
    keys[0] = keys[0] * 6 + keys[1]  # equal pairs have equal letters
    is_there, is_sound = rng.random(200) < 0.9, rng.random(200) < 0.7
    flags = duplicate_flags(keys, is_there, is_sound)
    for n in range(200):
        before = [m for m in range(n) if is_there[m]]
        expected = 0
        if not is_there[n]:
            pass
        elif any(keys[0, m] == keys[0, n] for m in before):
            expected = BITS["duplicate"]
        elif any(keys[1, m] == keys[1, n] and is_sound[m] for m in before):
            expected = BITS["same_letters"]
        else:
            first = next((m for m in before if keys[2, m] == keys[2, n]), None)
            expected = BITS["several_targets"] if first is not None and keys[1, first] != keys[1, n] else 0
        assert flags[n] == expected, n


def test_near_leaks_are_those_of_brute_force() -> None:
    """Words in common out of all words of both, for every pair of texts."""
    rng, words = random.Random(5), [f"word{n}" for n in range(300)]
    held_out = [" ".join(rng.sample(words, rng.randint(3, 14))) for _ in range(60)]
    texts = []
    for text in held_out * 4:
        parts = text.split()
        for _ in range(rng.randint(0, 4)):
            parts[rng.randrange(len(parts))] = rng.choice(words)
        texts.append(" ".join(parts))
    index = HeldOut()
    index.add("test", [(text, "x") for text in held_out])
    found = index.flags(0, texts)
    sets = [set(text.split()) for text in held_out]
    missed = wrong = 0
    for text, flags in zip(texts, found.tolist(), strict=True):
        own = set(text.split())
        near = [one for one in sets if len(one) >= LEAST_WORDS and len(one & own) >= NEAR * len(one | own)]
        is_near = bool(near) and len(own) >= LEAST_WORDS
        if text in held_out:
            assert flags == BITS["leak"]
        else:
            missed += is_near and not flags
            wrong += bool(flags) and not is_near
    assert (missed, wrong) == (0, 0)


def test_a_leak_is_told_with_its_place() -> None:
    index = HeldOut()
    index.add("validation", [("one two three four five six seven eight nine", "x"), ("The  Cat", "El gato")])
    assert index.where(0, "the cat") == ("validation", 2, 1.0)
    split, line, share = index.where(0, "one two three four five six seven eight ten") or ("", 0, 0.0)
    assert (split, line) == ("validation", 1)
    assert share == pytest.approx(8 / 10)
    assert index.where(0, "another text of some words that nobody knows") is None


def test_a_name_is_what_stands_on_both_sides() -> None:
    pairs = [("I saw Tom.", "Vi a Tom.")] * 6 + [("I saw Mary.", "Vi a Mary.")] * 6 + [("In Rome.", "En Roma.")] * 9
    names = names_in(count_names(pairs))
    assert names == {"Tom", "Mary"}
    assert other_names("I saw Tom.", "Vi a Mary.", names) == (["Tom"], ["Mary"])
    assert other_names("I saw Tom.", "Vi a Tomás y a Mary.", names) is None  # the same name in another form
    assert other_names("I saw Tom.", "Lo vi.", names) is None  # a pronoun is no other name


def test_ratios_are_those_of_the_corpus() -> None:
    """A side twice as long as the other is normal here, and an equal one is not."""
    rng = np.random.default_rng(1)
    src = rng.integers(20, 60, 2000).astype(np.uint32)
    tgt = (src * rng.uniform(1.8, 2.2, 2000)).astype(np.uint32)
    bands = Bands.of(src, tgt)
    assert bands is not None
    assert not bands.outside(src, tgt).any()
    odd = bands.outside(np.array([40, 40, 40, 0], np.uint32), np.array([80, 40, 200, 50], np.uint32))
    assert odd.tolist() == [False, True, True, False]
    assert Bands.of(src[:50], tgt[:50]) is None


@pytest.mark.parametrize("first", [0, 2, None])
def test_the_likeliest_path_is_that_of_brute_force(first: int | None) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        scores = rng.normal(size=(6, 3)) * 3

        def value(path: Sequence[int], scores: np.ndarray = scores) -> float:
            changes = sum(a != b for a, b in itertools.pairwise(path if first is None else (first, *path)))
            return float(sum(scores[n, state] for n, state in enumerate(path))) - 2.0 * changes

        best = max(itertools.product(range(3), repeat=6), key=value)
        assert tuple(likeliest_states(scores, 2.0, first).tolist()) == best


def test_lines_are_paired_along_a_path() -> None:
    stretch = Stretch(["a", "b", "c", "d"], ["x", "a", "b", "c"])
    assert stretch.along([1, None, 1, 1]) == [("a", "a"), ("c", "c")]  # the last one's partner is beyond the end
    assert stretch.along([-1, 0, 0, 0]) == [("b", "a"), ("c", "b"), ("d", "c")]
    assert stretch.along([]) == []


def test_parts_of_a_path() -> None:
    path = np.array([0, 0, 1, 1, -2, 0, 3], np.int16)
    assert shifted_parts(path) == [(2, 3, 1), (4, 4, -2), (6, 6, 3)]
    assert shifted_parts(np.zeros(4, np.int16)) == []


@pytest.mark.parametrize("margin", [0, 3, 10])
@pytest.mark.parametrize("number", [1, 7, 8, 20, 23])
def test_blocks_hold_every_pair_once_with_its_neighbours(
    number: int, margin: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 8)
    pairs = [(f"a{n}", f"b{n}") for n in range(number)]
    sources = [*sources_of_pairs(tmp_path, "one", pairs), *sources_of_pairs(tmp_path, "two", pairs[:5])]
    found, places = [], []
    for block in read_blocks(sources, "test", margin):
        found += zip(*block.sides, strict=True)
        places += range(block.first, block.first + len(block))
        own = pairs if block.source == 0 else pairs[:5]
        first = block.lines[0] - 1
        around = own[max(0, first - margin) : first + len(block) + margin]
        assert list(zip(block.src, block.tgt, strict=True)) == around
    assert found == pairs + pairs[:5]
    assert places == list(range(len(found)))


def test_without_room_for_a_model_of_languages_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """py3langid unpacks its model into the folder of temporary files."""
    langid = pytest.importorskip("py3langid.langid", reason="the extra check is not installed")

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(langid.LanguageIdentifier, "from_model_file", full)
    languages._identifier.cache_clear()
    with pytest.raises(UserError, match=r"cannot unpack its model in /.*: No space left on device\. Free some space"):
        languages.is_there()
    monkeypatch.undo()
    assert languages.is_there()
