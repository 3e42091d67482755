"""The file of expectations: what is read, and what is refused by file and line."""

from pathlib import Path

import pytest
from pages import blocks, tables
from pages import read as read_page

from transformer_mt.behaviour.expectations import BUILT_IN, Expectation, read_expectations
from transformer_mt.behaviour.kinds import KINDS
from transformer_mt.errors import UserError

GOOD = """
- name: greetings
  kind: equals
  sources: [Good morning., Good night.]
  expected: [Buenos días., Buenas noches.]
  minimum: 1
- {name: numbers, kind: numbers_kept}
- name: terms
  kind: glossary
  glossary: terms.tsv
"""


def read(folder: Path, text: str) -> list:
    (folder / "t.yaml").write_text(text, encoding="utf-8")
    return read_expectations(folder / "t.yaml")


def test_a_good_file(tmp_path: Path) -> None:
    greetings, numbers, terms = read(tmp_path, GOOD)
    assert greetings.expectation.expected_texts == ["Buenos días.", "Buenas noches."]
    assert greetings.expectation.minimum == 1.0
    assert numbers.where == f"{tmp_path / 't.yaml'}, line 7"
    assert numbers.expectation == Expectation(name="numbers", kind="numbers_kept")
    assert terms.expectation.glossary == str(tmp_path / "terms.tsv")  # beside the file


def test_a_glossary_in_the_home_of_nobody_is_a_file_like_any_other(tmp_path: Path) -> None:
    (terms,) = read(tmp_path, "- {name: terms, kind: glossary, glossary: ~nobody-of-this-name/terms.tsv}")
    assert terms.expectation.glossary == str(tmp_path / "~nobody-of-this-name" / "terms.tsv")


def test_the_file_of_the_docs(tmp_path: Path) -> None:
    (text,) = (block for block in blocks("docs/behaviour_tests.md", "text") if block.startswith("- name"))
    assert len(read(tmp_path, text)) >= 3


def test_the_tables_of_the_docs_have_every_kind_and_key() -> None:
    kinds, keys = tables(read_page("docs/behaviour_tests.md"))
    assert [row[0] for row in kinds[1:]] == [f"`{placed.expectation.kind}`" for placed in BUILT_IN]
    assert [row[0] for row in keys[1:]] == [f"`{key}`" for key in Expectation.model_fields]
    assert all(f"`{name}`" in keys[2][1] for name, kind in KINDS.items() if kind.takes == "expected")


ONE = "- name: a\n  kind: equals\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", None, "holds no list of expectations"),
        ("name: a", None, "holds no list of expectations"),
        ("- name: a\n  kind: [", 2, "t.yaml, line 2, column"),
        ("- a", 1, "an expectation is a map of keys"),
        ("- name: a", 1, "kind: missing"),
        ("- kind: not_empty", 1, "name: missing"),
        ("- name: a\n  kind: nubers_kept", 2, "did you mean numbers_kept?"),
        ("- name: a\n  kind: not_empty\n  minimun: 1", 3, "minimun: unknown key, did you mean minimum?"),
        ("- name: a\n  kind: not_empty\n  minimum: 1.5", 3, "must be at most 1"),
        ("- name: a\n  kind: not_empty\n  sources: validaton", 3, "must be a list of sources, or the word validation"),
        ("- name: a\n  kind: not_empty\n  sources: []", 3, "must be a list of sources"),
        ("- name: a\n  kind: not_empty\n  sources:\n    - a\n    - 7", 3, "7 is no text; put it in quotes"),
        (ONE + "  sources: [a]", 1, "the kind equals needs key expected"),
        (ONE + "  expected: x", 1, "the kind equals needs a list of sources"),
        (ONE + "  sources: [a]\n  expected: [x, y]", 1, "expected has 2 texts for 1 source"),
        ("- name: a\n  kind: contains\n  expected: [x]", 1, "must be one text, not a list"),
        ("- name: a\n  kind: not_empty\n  expected: x", 1, "the kind not_empty has no key expected"),
        ("- name: a\n  kind: not_empty\n  glossary: x", 1, "the kind not_empty has no key glossary"),
        ("- name: a\n  kind: names_kept\n  sources: [a]", 1, "needs references"),
        ("- name: a\n  kind: matches\n  expected: '('", 1, "is no regular expression"),
        ("- name: a\n  kind: matches\n  expected: (?a)(?u)", 1, "'(?a)(?u)' is no regular expression"),
        pytest.param(
            f"- name: a\n  kind: matches\n  expected: '{'(' * 2000 + ')' * 2000}'",
            1,
            "is no regular expression",
            id="deep brackets",
        ),
        ("- {name: a, kind: not_empty}\n- {name: a, kind: not_empty}", 2, "is that of"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "t.yaml") + (f", line {line}" if line else ""))
    assert "\n" not in str(error.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_expectations(tmp_path / "none.yaml")


def test_the_built_in_ones_need_nothing_of_a_user() -> None:
    kinds = [placed.expectation.kind for placed in BUILT_IN]
    assert kinds == [name for name, kind in KINDS.items() if kind.takes != "expected"]
