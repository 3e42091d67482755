"""What YAML text becomes, what is refused, and that what is written reads back."""

import math
from itertools import pairwise
from typing import cast

import pytest
from attempts import attempt
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.config.yaml_text import parse_yaml, write_yaml
from transformer_mt.errors import UserError


def refusal(text: str) -> str:
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "some.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(word, word) for word in ("no", "yes", "on", "off", "No", "YES", "y", "n", "Off")],
        *[(word, True) for word in ("true", "True", "TRUE")],
        *[(word, False) for word in ("false", "False", "FALSE")],
        *[(word, None) for word in ("~", "null", "Null", "NULL", "", "# only a comment")],
        ("1e-4", 0.0001),
        ("1E5", 100000.0),
        ("1e+2", 100.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.5e1", -5.0),
        ("1.5e-3", 0.0015),
        ("+7", 7),
        ("-12", -12),
        ("0", 0),
        *[
            (word, word)
            for word in ("1_000", "012", "0o17", "0x1F", "0b1", "12:30", "1:30:00", "2024-01-31", "1e", "e5")
        ],
        ("2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z"),
        ("'1e-4'", "1e-4"),
        ('"true"', "true"),
        ("=", "="),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
    ],
)
def test_scalars_are_read_by_yaml_1_2(text: str, value: object):
    read = parse_yaml(text, "some.yaml")
    assert read == value
    assert type(read) is type(value)


def test_nan_and_infinity_are_numbers_that_the_schema_refuses_later():
    assert parse_yaml("[.inf, -.inf]", "some.yaml") == [math.inf, -math.inf]
    assert math.isnan(cast("float", parse_yaml(".nan", "some.yaml")))


def test_anchors_aliases_and_merge_keys_work():
    text = "small: &small {d_model: 64, d_ff: 128}\nmodel: {<<: *small, d_ff: 256}\nsame: *small\n"
    assert parse_yaml(text, "some.yaml") == {
        "small": {"d_model": 64, "d_ff": 128},
        "model": {"d_model": 64, "d_ff": 256},
        "same": {"d_model": 64, "d_ff": 128},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n\tb: 2", "line 2, column 1: found character '\\t' that cannot start any token; indent with spaces"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here; put a value that holds ': ' in quotes"),
        ("a: [1, 2\nb: 3", "line 2, column 2: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("a:\n  b: 1\n c: 2", "line 3, column 2: while parsing a block mapping, expected <block end>"),
        ("a: 'open", "line 1, column 9: found unexpected end of stream; close the quotes or brackets"),
        ("a: *x", "line 1, column 4: found undefined alias 'x'; put a value that begins with * in quotes"),
        ("a: @x", "line 1, column 4: found character '@' that cannot start any token; put a value that begins"),
        ("a: 1\n---\nb: 2", "line 2, column 1: expected a single document in the stream, but found another document"),
        ("a: 1\nb: x\x01", "line 2, column 5: the character U+0001 is not allowed"),
        ('a: "\\0"', "line 1, column 4: the character U+0000, which no file name or sentence can hold"),
        ('a: "\\ud800"', "line 1, column 4: the character U+D800, which no file name or sentence can hold"),
        ('a: "\\UFFFFFFFF"', "some.yaml: not valid YAML"),
        ("1: x", "line 1, column 1: a key must be text, and 1 is not; put it in quotes"),
        ("? [a]\n: x", "line 1, column 3: a key must be text, and a list or map is not"),
        ("a: &a [*a]", "line 1, column 8: *a stands inside &a"),
        ("&a {b: {c: *a}}", "line 1, column 12: *a stands inside &a"),
        ("a: !!python/object/apply:os.system ['true']", "line 1, column 4: the tag !!python/object/apply:os.system is"),
        ("a: !!set {b}", "line 1, column 4: the tag !!set is not allowed: only plain data is read"),
        ("a: !mine b", "line 1, column 4: the tag !mine is not allowed"),
        ("a: !!int b", "line 1, column 4: 'b' is not a whole number"),
        ("a: !!bool yes", "line 1, column 4: 'yes' is not true or false"),
        ("a: !!str [b]", "line 1, column 4: a list or a map is not text"),
        ("a: " + "9" * 5000, "line 1, column 4: a number of 5000 digits"),
        ("a: {<<: 3}", "line 1, column 9: while constructing a mapping, expected a mapping or list of mappings"),
    ],
)
def test_broken_or_dangerous_text_is_refused_with_its_place(text: str, message: str):
    assert message in refusal(text)
    assert "\n" not in refusal(text)


NINE = "abcdefghi"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 500_000, "more than 32 levels of nesting"),
        ("{a: " * 200_000, "more than 32 levels of nesting"),
        ("- " * 500_000, "more than 32 levels of nesting"),
        ("a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}]\n" for i in range(500)), "more than 32 levels"),
        ("- a\n" * 250_000, "more than 20000 values"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(NINE)),
            "more than 20000 values, aliases written out",
        ),
        (
            "a: &a {x: 1, y: 2}\n"
            + "".join(f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n" for old, new in pairwise(NINE)),
            "more than 20000 values, aliases written out",
        ),
    ],
    ids=["lists", "maps", "dashes", "alias chain", "long list", "alias bomb", "merge bomb"],
)
def test_bombs_are_refused_before_they_go_off(text: str, message: str):
    assert message in refusal(text)


@settings(max_examples=150)
@given(
    st.one_of(st.text(max_size=60), st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,?\n\t 0e.~<\\xuU/=\u2028\x85é", max_size=40))
)
def test_any_text_is_data_or_a_user_error(text: str):
    data, told = attempt(lambda: parse_yaml(text, "some.yaml"))
    assert is_plain(data) if told is None else told.startswith("some.yaml")


def is_plain(data: object) -> bool:
    """Whether it is what JSON has, which is all that a config may hold."""
    if isinstance(data, dict):
        return all(isinstance(key, str) and is_plain(value) for key, value in data.items())
    return all(map(is_plain, data)) if isinstance(data, list) else data is None or type(data) in (str, int, float, bool)


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(
        ["no", "1e-4", "1_000", "012", "true", "~", "", "<<", "12:30", ".5", "=", " a ", "a #b", "😀", "\u2028"]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=150)
@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_what_is_written_reads_back_equal(data: dict):
    assert parse_yaml(write_yaml(data), "written") == data


def test_written_text_is_readable():
    data = {
        "name": "größe",
        "train": [{"src": "a b.en", "tgt": "日本.de"}, {"tsv": "😀"}],
        "betas": [0.9, 0.98],
        "lang": "no",
    }
    assert write_yaml(data) == (
        "name: größe\ntrain:\n  - {src: a b.en, tgt: 日本.de}\n  - {tsv: 😀}\nbetas: [0.9, 0.98]\nlang: 'no'\n"
    )
