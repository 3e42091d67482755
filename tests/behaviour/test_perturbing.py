"""The changes of sources beside cases worked out by hand, and laws that hold for any text."""

from random import Random

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from transformer_mt.behaviour.negation import negation_of
from transformer_mt.behaviour.perturbing import (
    Replaced,
    has_name,
    names_of,
    other_name,
    other_number,
    value_of,
    with_double_space,
    without_stop,
)


@pytest.mark.parametrize(
    ("src", "ref", "old"),
    [
        ("I have 12 cats.", "Tengo 12 gatos.", "12"),
        ("It costs 1,250.75 dollars", "Cuesta 1.250,75 dólares", "1,250.75"),
        ("٤٥ قطة", "45 cats", "٤٥"),
        ("我有12只猫", "I have 12 cats", "12"),
        ("I have 12 cats.", "Tengo doce gatos.", None),  # the pair itself does not keep it in digits
        ("1 dog and 0 cats", "1 perro y 0 gatos", None),  # another number would change the words around it
        ("B52 at 7:30, 2024-01-31", "B52 a las 7:30, 2024-01-31", None),
        ("12 and 12", "12 y 12", None),  # the other one would stay
        ("in the 1990s", "en los 1990s", None),
        ("2 3 4 5 6 7 8 9", "2 3 4 5 6 7 8 9", None),  # no other one is left
    ],
)
def test_another_number(src: str, ref: str, old: str | None) -> None:
    made = other_number(src, ref, Random(1))
    assert (made and made.old) == old
    if made is not None:
        marks = [[c for c in number if not c.isdecimal()] for number in (made.old, made.new)]
        assert marks[0] == marks[1]
        assert len(made.old) == len(made.new)


@given(st.text(st.sampled_from("ab 0123456789.,-:۵٣三\n")), st.integers(0, 99))
@example("7.0:", 0)
def test_a_number_is_the_only_thing_that_changes(text: str, seed: int) -> None:
    made = other_number(text, None, Random(seed))
    if made is not None:
        start = next(i for i in range(len(text) + 1) if text[:i] + made.new + text[i + len(made.old) :] == made.text)
        assert text[start : start + len(made.old)] == made.old
        assert value_of(made.new) != value_of(made.old)
        assert min(value_of(made.new), value_of(made.old)) >= 2


PAIRS = [
    ("Anna met Tom.", "Anna traf Tom."),
    ("Tom saw Anna.", "Tom sah Anna."),
    ("Tom and Marek sing.", "Tom und Marek singen."),
    ("Marek sleeps.", "Marek schläft."),
    ("The cat sleeps.", "Die Katze schläft."),
    ("Normal, Metal", "Normal, Metal"),  # only at the beginning; and in lower case elsewhere
    ("Normal. Metal", "Normal. Metal"),
    ("Of metal.", "Aus Metall."),
]


def test_names_are_those_of_both_sides() -> None:
    names = names_of(PAIRS)
    assert names == ["Anna", "Marek", "Tom"]
    made = other_name("Anna met Tom.", "Anna traf Tom.", names, Random(3))
    assert made in [Replaced("Marek met Tom.", "Anna", "Marek"), Replaced("Anna met Marek.", "Tom", "Marek")]
    assert other_name("The cat sleeps.", "Die Katze schläft.", names, Random(3)) is None
    assert other_name("Tom is here.", "Er ist hier.", names, Random(3)) is None
    assert other_name("Tom and Tom.", "Tom und Tom.", names, Random(3)) is None


@pytest.mark.parametrize(
    ("text", "name", "is_there"),
    [
        ("Vidí Annu.", "Anna", True),
        ("Vidí Tomáše.", "Tom", True),
        ("José está aquí.", "Jose", True),
        ("An alle.", "Anna", False),
        ("Er ist hier.", "Tom", False),
    ],
)
def test_an_inflected_name_is_a_name(text: str, name: str, is_there: bool) -> None:
    assert has_name(text, name) == is_there


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("The cat sat.", "The cat sat"),
        ("The cat sat. ", "The cat sat"),
        ("猫坐着。", "猫坐着"),
        ("The cat sat", None),
        ("Well...", None),
        ("Really?", None),
        (".", None),
    ],
)
def test_without_the_full_stop(text: str, bare: str | None) -> None:
    assert without_stop(text) == bare


@given(st.text(), st.integers(0, 99))
def test_a_doubled_space_is_one_space_more(text: str, seed: int) -> None:
    made = with_double_space(text, Random(seed))
    if made is None:
        assert regex.search(r"\S \S", text) is None
    else:
        assert len(made) == len(text) + 1
        assert made.split() == text.split()


@pytest.mark.parametrize(
    ("language", "negated", "plain"),
    [
        ("en_US", "I don’t know.", "I know a knot."),
        ("de", "Das ist KEIN Hund.", "Das ist ein Hund."),
        ("es", "No lo sé.", "Lo noto."),
        ("fr", "Il n'est pas là.", "Il est là."),
        ("zh-TW", "我不知道", "我知道"),
        ("ja", "分かりません", "分かります"),
        ("ru", "Я не знаю.", "Я знаю небо."),
    ],
)
def test_words_that_negate(language: str, negated: str, plain: str) -> None:
    pattern = negation_of(language)
    assert pattern is not None
    assert pattern.search(negated)
    assert not pattern.search(plain)


def test_a_language_without_a_table_has_no_rule() -> None:
    assert negation_of("tr") is None
