"""Planted faults: a translator that copies passes every test of a copying language, and each fault fails its own."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
import regex
from toy import toy_config

from transformer_mt.behaviour.expectations import BUILT_IN, Expectation, KindName, Placed
from transformer_mt.behaviour.kinds import KINDS
from transformer_mt.behaviour.outcomes import Outcome, outcomes
from transformer_mt.behaviour.planning import plan, texts_of
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.errors import UserError

NAMES = ["Anna", "Tom", "Marek", "Rosa"]
TEXTS = [
    text
    for i, name in enumerate(NAMES)
    for text in (
        f"The {20 + i} dogs do not see {name}.",
        f"{name} has {30 + i} cats.",
        f"{name} is here.",
        f"{NAMES[i - 1]} and {name} never sleep.",
        f"What does {name} eat?",
    )
]
PAIRS = [(text, text) for text in TEXTS]
EN_ES = ("en", "es")
WITH_TERMS = "cats\tcats|kittens\n"


@pytest.fixture
def glossary(tmp_path: Path) -> str:
    path = tmp_path / "terms.tsv"
    path.write_text(WITH_TERMS, encoding="utf-8")
    return str(path)


def judged(make: Callable[[str], str], glossary: str | None, languages: tuple[str, str] = ("en", "en")):
    config = toy_config(Path(), data={"src_lang": languages[0], "tgt_lang": languages[1]})
    planned = plan(BUILT_IN, config, PAIRS, glossary, lambda text: True, languages, 15)
    translations = {
        text: Translated(text, [Translation(make(text), 0.0, 0.0, [])] if make(text) else [])
        for text in texts_of(planned)
    }
    return {outcome.expectation.kind: outcome for outcome in outcomes(planned, [translations])}


def test_a_copying_translator_passes_all(glossary: str) -> None:
    found = judged(copied, glossary)
    assert set(found) == {name for name, kind in KINDS.items() if kind.takes != "expected"}
    for outcome in found.values():
        assert outcome.num_cases >= 4, outcome
        assert outcome.rate(0) == 1.0, outcome
        assert outcome.is_reached


def copied(text: str) -> str:
    return " ".join(text.split())


FAULTS: dict[str, Callable[[str], str]] = {
    "not_empty": lambda text: "",
    "numbers_kept": lambda text: regex.sub(r"\d+", "7", text),
    "names_kept": lambda text: regex.sub("(?i)Anna|Tom|Marek|Rosa", "Peter", text),
    "negation_kept": lambda text: regex.sub(r"\b(not|never) ", "", text),
    "ignores_case": lambda text: text if text != text.lower() else "what?",
    "ignores_full_stop": lambda text: text if text.endswith((".", "?")) else "what?",
    "ignores_spaces": lambda text: text,
    "glossary": lambda text: text.replace("cats", "dogs"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_fails_its_own_test(kind: str, glossary: str) -> None:
    is_copied = kind != "ignores_spaces"
    found = judged(lambda text: FAULTS[kind](copied(text) if is_copied else text), glossary)
    assert found[kind].rate(0) == 0.0
    assert len(found[kind].failures[0]) == found[kind].num_cases
    if kind != "not_empty":  # without which little else can be
        assert [name for name in found if found[name].rate(0) < 1.0] == [kind]


def test_what_cannot_be_tested_is_said() -> None:
    found = judged(lambda text: text, None, ("en", "tr"))
    assert found["negation_kept"].untested == "there is no table of words that negate in tr"
    assert found["glossary"].untested == "the run has no decoding.glossary"
    assert found["negation_kept"].num_cases == 0
    assert found["negation_kept"].is_reached  # nothing was asked
    config = toy_config(Path())
    numbers = Placed(Expectation(name="n", kind="numbers_kept", minimum=0.5))
    (planned,) = plan([numbers], config, [("a", "b")], None, lambda text: True, EN_ES, 15)
    (outcome,) = outcomes([planned], [{}])
    assert outcome.untested == KINDS["numbers_kept"].nothing
    assert not outcome.is_reached  # a minimum was asked


def test_the_same_cases_each_time(glossary: str) -> None:
    config = toy_config(Path())
    first, second = (plan(BUILT_IN, config, PAIRS, glossary, lambda text: True, EN_ES, 5) for _ in range(2))
    assert texts_of(first) == texts_of(second)
    assert max(len(one.cases) for one in first) == 5


def test_what_the_model_cannot_read_is_no_case_of_it() -> None:
    config = toy_config(Path())
    planned = plan(BUILT_IN, config, PAIRS, None, lambda text: "Anna" not in text, EN_ES, 15)
    assert texts_of(planned)
    assert not any("Anna" in text for text in texts_of(planned))
    own = Placed(Expectation(name="n", kind="not_empty", sources=["Anna"]), "f.yaml, line 3")
    with pytest.raises(UserError, match=r"^f.yaml, line 3: 'Anna' is blank, or longer than the model reads"):
        plan([own], config, [], None, lambda text: "Anna" not in text, EN_ES, 15)


@pytest.mark.parametrize(
    ("kind", "expected", "right", "wrong"),
    [
        ("contains", "gato", "un gato", "un perro"),
        ("contains", "cafe\u0301", "un café", "un cafe"),
        ("not_contains", "gato", "un perro", "un gato"),
        ("equals", "gato", " gato", "Gato"),
        ("matches", r"\.$", "un gato.", "un gato"),
    ],
)
def test_what_a_user_expects(kind: KindName, expected: str, right: str, wrong: str) -> None:
    placed = Placed(Expectation(name="n", kind=kind, sources=["one", "two"], expected=[expected, expected]))
    planned = plan([placed], toy_config(Path()), [], None, lambda text: True, EN_ES, 15)
    outputs = {"one": right, "two": wrong}
    said = {text: Translated(text, [Translation(outputs[text], 0.0, 0.0, [])]) for text in texts_of(planned)}
    (outcome,) = outcomes(planned, [said])
    assert outcome.passed == [[True, False]]
    assert outcome.failures[0][0].output == wrong


def test_the_same_as_another_source() -> None:
    placed = Placed(Expectation(name="n", kind="same_as", sources=["a", "b"], expected="c", minimum=0.5))
    planned = plan([placed], toy_config(Path()), [], None, lambda text: True, EN_ES, 15)
    assert texts_of(planned) == ["a", "c", "b"]
    outputs = {"a": "x", "b": "y", "c": "y"}
    said = {text: Translated(text, [Translation(outputs[text], 0.0, 0.0, [])]) for text in outputs}
    (outcome,) = outcomes(planned, [said])
    assert outcome.passed == [[False, True]]
    assert outcome.is_reached
    assert outcome.failures[0][0].expected == "the translation of 'c': y"


def test_the_table_holds_the_kinds_of_the_file() -> None:
    assert list(KINDS) == list(get_args(KindName))
    assert {kind.test for kind in KINDS.values()} == {"minimum", "invariance", "directional"}


@pytest.mark.parametrize(("only_first", "only_second", "both"), [(0, 0, 5), (1, 8, 3), (9, 2, 0), (5, 5, 1)])
def test_p_values_count_the_ways_to_differ_as_much(only_first: int, only_second: int, both: int) -> None:
    first = [True] * only_first + [False] * only_second + [True] * both
    second = [False] * only_first + [True] * only_second + [True] * both
    outcome = Outcome(BUILT_IN[0].expectation, len(first), "", [first, second], [[], []])
    ways = [abs(sum(signs)) for signs in product((1, -1), repeat=only_first + only_second)]
    assert outcome.p_value == sum(way >= abs(only_first - only_second) for way in ways) / len(ways)
