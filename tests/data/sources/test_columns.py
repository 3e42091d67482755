"""Which columns of a file are read: by name, by number, by language, and those that are not there."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writers import PAIRS, fails, make_source, read, write_tsv

from transformer_mt.config.sections.sources import ColumnsConfig, SourceConfig

COLUMNS = ColumnsConfig(src="one", tgt="two")


def test_columns_of_a_reversed_source_are_named_as_in_its_file(tmp_path: Path) -> None:
    """By number, by name, and by the codes of the languages, which a config that is reversed has exchanged."""
    (tmp_path / "a.tsv").write_text("x\tuno\tone\n")
    source = make_source("tsv", "a.tsv", columns={"src": 3, "tgt": 2}, reverse=True)
    assert read(tmp_path, source) == [("uno", "one")]
    (tmp_path / "a.jsonl").write_text('{"en": "one", "es": "uno"}\n')
    assert read(tmp_path, make_source("jsonl", "a.jsonl", reverse=True), src_lang="es", tgt_lang="en") == [
        ("uno", "one")
    ]
    (tmp_path / "a.csv").write_text("english,spanish\none,uno\n")
    columns = {"src": "english", "tgt": "spanish"}
    assert read(tmp_path, make_source("csv", "a.csv", columns=columns, reverse=True)) == [("uno", "one")]


def test_tsv_columns_by_number_others_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('7\t"eins\tone\tx\n\n8\tzwei"\ttwo\n', encoding="utf-8")
    columns = ColumnsConfig(src=3, tgt=2)
    expected = [("one", '"eins'), ("", ""), ("two", 'zwei"')]
    assert read(tmp_path, SourceConfig(tsv="a.tsv", columns=columns)) == expected
    assert read(tmp_path, SourceConfig(tsv="a.tsv"), columns=columns) == expected


TABLES = {"src": ["s"], "tgt": ["t"], "en": ["e"], "de": ["d"], "one": ["1"], "two": ["2"]}


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (["src", "tgt", "en", "de"], {}, ("s", "t")),
        (["src", "tgt", "en", "de"], {"src_lang": "en", "tgt_lang": "de"}, ("e", "d")),
        (["src", "tgt", "en"], {"src_lang": "en", "tgt_lang": "de"}, ("s", "t")),
        (["src", "tgt", "one", "two"], {"columns": COLUMNS}, ("1", "2")),
    ],
)
@pytest.mark.parametrize(
    ("kind", "nested"), [("csv", False), ("jsonl", False), ("jsonl", True), ("parquet", False), ("parquet", True)]
)
def test_which_columns(kind: str, nested: bool, names: list[str], settings: Any, expected: Any, tmp_path: Path) -> None:
    row = {name: TABLES[name][0] for name in names}
    if kind == "csv":
        (tmp_path / "a").write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n", encoding="utf-8")
    elif kind == "jsonl":
        (tmp_path / "a").write_text(json.dumps({"translation": row} if nested else row) + "\n", encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist([{"translation": row} if nested else row]), tmp_path / "a")
    source = make_source(kind, "a")
    assert read(tmp_path, source, **settings) == [expected]
    own = make_source(kind, "a", columns=ColumnsConfig(src=names[1], tgt=names[0]))
    assert read(tmp_path, own, **settings) == [(TABLES[names[1]][0], TABLES[names[0]][0])]


def test_null_is_a_blank_side(tmp_path: Path) -> None:
    lines = ['{"src": null, "tgt": "a"}', '{"translation": {"src": "b", "tgt": null}}', '{"translation": null}', ""]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    expected = [("", "a"), ("b", ""), ("", ""), ("", "")]
    assert read(tmp_path, SourceConfig(jsonl="a.jsonl")) == expected
    rows = [{"translation": {"src": "b", "tgt": None}}, {"translation": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "nested.parquet")
    assert read(tmp_path, SourceConfig(parquet="nested.parquet")) == expected[1:3]
    pq.write_table(pa.table({"src": pa.nulls(2), "tgt": ["a", None]}), tmp_path / "flat.parquet")
    assert read(tmp_path, SourceConfig(parquet="flat.parquet")) == [("", "a"), ("", "")]


def test_one_language_on_both_sides_is_no_column_twice(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"en": "hard words", "simple": "easy"}\n', encoding="utf-8")
    source = SourceConfig(jsonl="a.jsonl")
    message = fails(tmp_path, source, src_lang="en", tgt_lang="en")
    assert "no columns src and tgt; the columns that exist are en, simple" in message
    columns = ColumnsConfig(src="en", tgt="simple")
    assert read(tmp_path, source, src_lang="en", tgt_lang="en", columns=columns) == [("hard words", "easy")]


@pytest.mark.parametrize(
    ("header", "way"),
    [
        ("en;es", "one column with semicolons in it: if they are between its cells, write the file with commas."),
        ("en\tes", "one column with tabs in it: if they are between its cells, name the file as tsv."),
        ("text", "Name the two that hold the text, for example columns: {src: english, tgt: spanish}."),
    ],
)
def test_a_header_of_one_column_is_told_what_separates_cells(header: str, way: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\na\n", encoding="utf-8")
    assert fails(tmp_path, SourceConfig(csv="a.csv"), src_lang="en", tgt_lang="es").endswith(way)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_missing_column_names_those_that_exist(kind: str, tmp_path: Path) -> None:
    (tmp_path / "csv").write_text("id,en,fr\n1,2,3\n", encoding="utf-8")
    (tmp_path / "jsonl").write_text('{"id": "1", "en": "2", "fr": "3"}\n', encoding="utf-8")
    pq.write_table(pa.table({"id": ["1"], "en": ["2"], "fr": ["3"]}), tmp_path / "parquet")
    source = make_source(kind, kind)
    message = fails(tmp_path, source, src_lang="en", tgt_lang="es")
    assert f"{tmp_path}/{kind}" in message
    assert "no columns en and es, nor src and tgt; the columns that exist are id, en, fr" in message
    assert "columns: {src:" in message
    assert "no columns one and two;" in fails(tmp_path, source, columns=COLUMNS)
    numbers = ColumnsConfig(src=1, tgt=2)
    assert f"a {kind} source has names" in fails(tmp_path, source, columns=numbers)


def test_tsv_has_no_names(tmp_path: Path) -> None:
    assert "a TSV file has no header" in fails(tmp_path, write_tsv(tmp_path, PAIRS), columns=COLUMNS)
