"""Every kind of source gives back exactly the pairs that were written, and says what is wrong where it cannot."""

import bz2
import gc
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writers import (
    ANY,
    LINE,
    PAIRS,
    WRITERS,
    fails,
    make_config,
    make_source,
    read,
    write_csv,
    write_hub,
    write_jsonl,
    write_parquet,
    write_text,
    write_tsv,
)

from transformer_mt.config.sections.sources import SOURCE_KINDS, ColumnsConfig, SourceConfig
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.sources.kinds import source_of
from transformer_mt.data.sources.source import RawPair
from transformer_mt.errors import UserError

COLUMNS = ColumnsConfig(src="one", tgt="two")


@pytest.mark.parametrize("write", WRITERS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_written_is_read(write: Any, data: st.DataObject) -> None:
    side = LINE if write in (write_text, write_tsv) else ANY
    pairs = data.draw(st.lists(st.tuples(side, side), max_size=8))
    with tempfile.TemporaryDirectory() as folder:
        assert read(Path(folder), write(Path(folder), pairs)) == pairs


def write_builtin(_: Path, __: list[tuple[str, str]]) -> SourceConfig:
    return SourceConfig(builtin="en-es", split="test")


@pytest.mark.parametrize("write", [*WRITERS, write_hub, write_builtin])
def test_both_sides_change_places(write: Any, tmp_path: Path) -> None:
    """Of every kind of source, in pairs, blocks and streams, and under a key and an outline of its own."""
    source = write(tmp_path, [("one", "uno"), ("two", "dos")])
    assert {"text", *SOURCE_KINDS} - {"mono"} == {write(folder(tmp_path, i), []).kind
                                       for i, write in enumerate([*WRITERS, write_hub, write_builtin])}  # fmt: skip
    config = make_config(tmp_path)
    forward, turned = (source_of(source.model_copy(update={"reverse": is_so}), config) for is_so in (False, True))
    expected = [(pair.tgt, pair.src, pair.line) for pair in forward.pairs()]
    assert len(expected) > 1
    assert [(pair.src, pair.tgt, pair.line) for pair in turned.pairs()] == expected
    assert [(pair.src, pair.tgt, pair.line) for pair in turned.streamed()] == expected
    assert [pair for block in turned.blocks() for pair in zip(*block, strict=True)] == expected
    assert forward.key() != turned.key()
    assert forward.outline() != turned.outline()


def folder(root: Path, number: int) -> Path:
    (root / str(number)).mkdir()
    return root / str(number)


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


@pytest.mark.parametrize("write", WRITERS)
def test_words_for_missing_values_and_odd_line_ends_are_text(write: Any, tmp_path: Path) -> None:
    assert read(tmp_path, write(tmp_path, PAIRS)) == PAIRS


@pytest.mark.parametrize("write", [write_text, write_tsv, write_csv, write_jsonl])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_gzip_is_seen_by_suffix_and_by_its_first_bytes(write: Any, suffix: str, tmp_path: Path) -> None:
    source = write(tmp_path, PAIRS)
    names = {}
    for key, name in source.model_dump(exclude_defaults=True).items():
        (tmp_path / (name + suffix)).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        names[key] = name + suffix
    assert read(tmp_path, SourceConfig.model_validate(names)) == PAIRS


@pytest.mark.parametrize("write", [write_text, write_tsv, write_csv, write_jsonl])
def test_byte_order_mark_crlf_and_missing_last_line_end(write: Any, tmp_path: Path) -> None:
    pairs = [("one", "uno"), ("two", "dos")]
    source = write(tmp_path, pairs)
    for name in source.model_dump(exclude_defaults=True).values():
        content = (tmp_path / name).read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.removesuffix(b"\r\n"))
    assert read(tmp_path, source) == pairs


def test_only_one_return_belongs_to_a_line_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\r\r\n\rb\rc\nlast\r")
    (tmp_path / "b").write_bytes(b"1\n2\n3\n")
    assert read(tmp_path, SourceConfig(src="a", tgt="b")) == [("a\r", "1"), ("\rb\rc", "2"), ("last\r", "3")]


def test_lines_are_numbered_and_blanks_keep_their_place(tmp_path: Path) -> None:
    source = write_text(tmp_path, [("a", "b"), ("", "c"), (" ", ""), ("d", "e")])
    assert list(source_of(source, make_config(tmp_path)).pairs())[3] == RawPair("d", "e", 4)


def test_tsv_columns_by_number_others_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('7\t"eins\tone\tx\n\n8\tzwei"\ttwo\n', encoding="utf-8")
    columns = ColumnsConfig(src=3, tgt=2)
    expected = [("one", '"eins'), ("", ""), ("two", 'zwei"')]
    assert read(tmp_path, SourceConfig(tsv="a.tsv", columns=columns)) == expected
    assert read(tmp_path, SourceConfig(tsv="a.tsv"), columns=columns) == expected


def test_csv_rows_may_span_lines_and_are_numbered_by_their_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,es,en\n1,"uno\ndos, ""tres""","one\r\ntwo"\n\n2,a\rb,c\n')
    pairs = list(source_of(SourceConfig(csv="a.csv"), make_config(tmp_path, src_lang="en", tgt_lang="es")).pairs())
    assert pairs == [
        RawPair("one\r\ntwo", 'uno\ndos, "tres"', 2),
        RawPair("", "", 5),
        RawPair("c", "a\rb", 6),
    ]


def test_a_long_csv_cell_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, write_csv(tmp_path, [("x" * 300_000, "y")])) == [("x" * 300_000, "y")]


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
    ("kind", "nested"),
    [("csv", False), ("jsonl", False), ("jsonl", True), ("parquet", False), ("parquet", True)],
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


def test_every_arrow_type_of_text(tmp_path: Path) -> None:
    plain = pa.array(["a", "b", "a"])
    pq.write_table(pa.table({"src": plain.dictionary_encode(), "tgt": plain.cast(pa.large_string())}), tmp_path / "a")
    assert read(tmp_path, SourceConfig(parquet="a")) == [("a", "a"), ("b", "b"), ("a", "a")]


def test_lines_before_the_header_of_csv_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\r\n\nsrc,tgt\na,b\n")
    assert list(source_of(SourceConfig(csv="a.csv"), make_config(tmp_path)).pairs()) == [RawPair("a", "b", 4)]


def test_one_language_on_both_sides_is_no_column_twice(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"en": "hard words", "simple": "easy"}\n', encoding="utf-8")
    source = SourceConfig(jsonl="a.jsonl")
    message = fails(tmp_path, source, src_lang="en", tgt_lang="en")
    assert "no columns src and tgt; the columns that exist are en, simple" in message
    columns = ColumnsConfig(src="en", tgt="simple")
    assert read(tmp_path, source, src_lang="en", tgt_lang="en", columns=columns) == [("hard words", "easy")]


# Data sets by name


def test_hub_name_is_asked_for_and_failure_says_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    asked = []
    columns: dict[str, Any] = {"translation": [{"en": "a", "es": "b"}, {"en": "c", "es": "d"}]}

    def load(name: str, config: str, split: str, cache_dir: str | None) -> datasets.Dataset:
        asked.append((name, config, split, cache_dir))
        return datasets.Dataset.from_dict(columns)

    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: type("Builder", (), {"config": None}))
    monkeypatch.setattr(datasets, "load_dataset", load)
    source = SourceConfig(hub="somebody/opus", config="en-es", split="train")
    assert read(tmp_path, source, is_streamed=False, src_lang="en", tgt_lang="es") == [("a", "b"), ("c", "d")]
    assert asked == [("somebody/opus", "en-es", "train", None)]
    assert source_of(source, make_config(tmp_path)).files() == []
    columns["translation"] = [{"en": 1, "es": 2}]
    message = fails(tmp_path, source, src_lang="en", tgt_lang="es")
    assert "somebody/opus, split train, row 1: column en holds a value of type int" in message

    def unreachable(*_: Any) -> None:
        raise ConnectionError("Couldn't reach 'somebody/opus' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", unreachable)
    message = fails(tmp_path, source)
    assert "somebody/opus" in message
    assert "Couldn't reach" in message
    assert "the network" in message
    assert "download its files" in message


def test_parts_of_splits_are_streamed_by_name(tmp_path: Path, monkeypatch: Any) -> None:
    """The library streams whole splits only. How many rows a split has is known where the card says so."""
    folder = tmp_path / "corpus"
    for split, numbers in (("train", range(4)), ("test", (10, 11))):
        (folder / split).mkdir(parents=True)
        rows = "".join(f"{number},x\n" for number in numbers)
        (folder / split / "a.csv").write_text(f"src,tgt\n{rows}", encoding="utf-8")
    for name in ("load_dataset", "load_dataset_builder"):
        original = getattr(datasets, name)
        monkeypatch.setattr(
            datasets, name, lambda _, *rest, _of=original, **options: _of(str(folder), *rest, **options)
        )

    def streamed(split: str) -> list[int]:
        source = SourceConfig(hub="somebody/opus", split=split)
        return [int(pair.src) for pair in source_of(source, make_config(tmp_path)).streamed()]

    assert streamed("train") == [0, 1, 2, 3]
    assert streamed("train[1:3]") == [1, 2]
    assert streamed("test[1:]+train[:2]") == [11, 0, 1]
    assert sorted(streamed("all")) == [0, 1, 2, 3, 10, 11]
    for split in ("train[:50%]", "train[-1:]"):
        with pytest.raises(UserError, match=r"how many rows there are is not known .* data.streaming: false"):
            streamed(split)
    card = "---\ndataset_info:\n  splits:\n  - {name: train, num_examples: 4}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    assert streamed("train[:50%]") == [0, 1]
    assert streamed("train[-1:]+test") == [3, 10, 11]


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
def test_packed_files_are_unpacked(pack: Any, tmp_path: Path) -> None:
    name = {bz2.compress: "a.tsv.bz2", gzip.compress: "a.tsv.gz", lzma.compress: "a.tsv.xz"}[pack]
    content = pack(b"a\tb\nc\td\n")
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path, SourceConfig(tsv=name)) == [("a", "b"), ("c", "d")]
    (tmp_path / name).write_bytes(content[:-8])
    assert "is not a whole gzip, bz2 or xz file" in fails(tmp_path, SourceConfig(tsv=name))


@pytest.mark.parametrize("name", ["a.jsonl.zip", "a.tar", "a.tar.gz", "a.tgz", "a.jsonl.zst"])
def test_archives_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"anything")
    assert f"{name} is an archive. Unpack it" in fails(tmp_path, SourceConfig(jsonl=name))


def test_builtin(tmp_path: Path) -> None:
    source = SourceConfig(builtin="en-es", split="test")
    pairs = list(source_of(source, make_config(tmp_path)).pairs())
    assert [(pair.src, pair.tgt) for pair in pairs] == builtin_pairs("test")
    assert [pair.line for pair in pairs[:2]] == [1, 2]


# Bad input


@pytest.mark.parametrize("kind", ["src", "tgt", "tsv", "csv", "jsonl", "parquet"])
def test_missing_file_folder_and_no_permission(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    write_text(tmp_path, PAIRS)
    names = {"src": "a.en", "tgt": "a.es"} if kind in ("src", "tgt") else {}
    source = SourceConfig.model_validate({**names, kind: "sub/nothing"})
    message = fails(tmp_path, source)
    assert f"There is no file {tmp_path}/sub/nothing" in message
    assert "data.root" in message
    (tmp_path / "sub" / "nothing").mkdir(parents=True)
    assert f"{tmp_path}/sub/nothing is a folder" in fails(tmp_path, source)
    (tmp_path / "sub" / "nothing").rmdir()
    os.mkfifo(tmp_path / "sub" / "nothing")
    assert "is a pipe" in fails(tmp_path, source)  # and does not wait for a writer
    (tmp_path / "sub" / "nothing").unlink()
    (tmp_path / "sub" / "nothing").write_text("", encoding="utf-8")
    really_open = Path.open

    def refuse(path: Path, *args: Any, **kwargs: Any) -> Any:  # root may read everything, so the system cannot refuse
        if path.name == "nothing":
            raise PermissionError(13, "Permission denied")
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    assert f"{tmp_path}/sub/nothing may not be read" in fails(tmp_path, source)


@pytest.mark.parametrize(("num_src", "num_tgt"), [(3, 1005), (1005, 3), (0, 1)])
def test_line_counts_that_differ_are_both_named(num_src: int, num_tgt: int, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"x\n" * num_src)
    (tmp_path / "a.es").write_bytes(b"y\n" * num_tgt)
    message = fails(tmp_path, SourceConfig(src="a.en", tgt="a.es"))
    assert f"a.en has {num_src:,} lines" in message
    assert f"a.es has {num_tgt:,}" in message


def test_bytes_that_are_not_utf8_are_named_by_file_and_line(tmp_path: Path) -> None:
    source = write_text(tmp_path, [("one", "uno"), ("two", "dos")])
    (tmp_path / "a.es").write_bytes("uno\nseñor\n".encode("latin1"))
    message = fails(tmp_path, source)
    assert "a.es, line 2: the bytes are not UTF-8 (0xf1 at byte 3" in message
    assert "iconv -f LATIN1" in message
    (tmp_path / "a.es").write_bytes("uno\ndos\n".encode("utf-16"))
    assert "iconv -f UTF-16" in fails(tmp_path, source)
    for kind in ("tsv", "csv", "jsonl"):
        first = {"tsv": "a\tb", "csv": "src,tgt", "jsonl": '{"src": "a", "tgt": "b"}'}[kind]
        (tmp_path / kind).write_bytes(first.encode() + b"\n\xff\n")
        assert f"{kind}, line 2: the bytes are not UTF-8" in fails(tmp_path, make_source(kind, kind))


@pytest.mark.parametrize("row", [2, 1500])
def test_rows_of_parquet_are_counted_from_the_beginning_of_the_file(row: int, tmp_path: Path) -> None:
    """Not of the 1,000 that are read at once."""
    source = SourceConfig(parquet="a.parquet")
    texts = pa.py_buffer(b"a" * (row - 1) + b"\xff")
    broken = pa.Array.from_buffers(pa.binary(), row, [None, pa.py_buffer(np.arange(row + 1, dtype=np.int32)), texts])
    pq.write_table(pa.table({"src": ["a"] * row, "tgt": broken.view(pa.string())}), tmp_path / "a.parquet")
    assert f"a.parquet, row {row}: the bytes are not UTF-8" in fails(tmp_path, source)
    pq.write_table(pa.table({"src": ["a"] * row, "tgt": [None] * (row - 1) + [7]}), tmp_path / "a.parquet")
    message = fails(tmp_path, source)
    assert f"a.parquet, row {row}: column tgt holds a value of type int, not text" in message


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


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """What other tests left behind is not collected while JSON is a thousand calls deep, where no finalizer can run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("tsv", "a\tb\nc\n", "line 2: 1 column, but column 2 is needed"),
        ("csv", "src,tgt\na,b\nHello, you,c\n", "line 3: 3 columns, but the header has 2"),
        ("csv", "src,tgt\na\n", "line 2: 1 column, but the header has 2"),
        ("csv", 'src,tgt\na,b\nc,"d\ne,f\n', "line 3: the row that begins here is not CSV"),
        ("csv", 'src,tgt\na,"b"c\n', "line 2: the row that begins here is not CSV"),
        ("csv", "src,tgt,src\na,b,c\n", "line 1 (the header): two columns are named src"),
        ("jsonl", '{"src": "a", "tgt": "b"}\n{"src": "a"\n', "line 2: not JSON (Expecting"),
        ("jsonl", "[1, 2]\n", "line 1: a JSON list, not an object"),
        ("jsonl", "[" * 100_000 + "\n", "line 1: not JSON"),
        ("jsonl", '{"src": "a", "tgt": ' + "9" * 5000 + "}\n", "line 1: not JSON"),
        ("jsonl", '{"src": "a", "tgt": 5}\n', "line 1: column tgt holds a value of type int, not text"),
        ("jsonl", '{"src": NaN, "tgt": "a"}\n', "line 1: column src holds a value of type float, not text"),
        (
            "jsonl",
            '{"src": "a", "tgt": "b"}\n{"src": "a"}\n',
            "line 2: no columns src and tgt; the columns that exist are src",
        ),
        ("jsonl", '{"src": "\\ud800", "tgt": "b"}\n', "line 1: column src holds half of a surrogate pair"),
        ("parquet", "PAR1 not parquet PAR1", "is not a whole Parquet file"),
        ("parquet", "", "is not a whole Parquet file"),
    ],
)
@pytest.mark.usefixtures("no_garbage")
def test_broken_content(kind: str, content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(content.encode())
    message = fails(tmp_path, make_source(kind, "broken"))
    assert f"{tmp_path}/broken" in message
    assert expected in message


def test_tsv_has_no_names(tmp_path: Path) -> None:
    assert "a TSV file has no header" in fails(tmp_path, write_tsv(tmp_path, PAIRS), columns=COLUMNS)


def test_text_of_parquet_that_changed_since_its_checksum(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pa.table({"src": ["The cat"], "tgt": ["El gato"]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False,
                   write_page_checksum=True)  # fmt: skip
    source = SourceConfig(parquet="a.parquet")
    assert read(tmp_path, source) == [("The cat", "El gato")]
    path.write_bytes(path.read_bytes().replace(b"gato", b"pato"))
    assert f"{path} is not a whole Parquet file" in fails(tmp_path, source)


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_cut_off_files(cut: float, tmp_path: Path) -> None:
    pairs = [(str(n), str(n * n)) for n in range(5000)]
    source = write_text(tmp_path, pairs)
    packed = gzip.compress((tmp_path / "a.es").read_bytes())
    (tmp_path / "a.es.gz").write_bytes(packed[: int(len(packed) * cut)])
    message = fails(tmp_path, source.model_copy(update={"tgt": "a.es.gz"}))
    assert f"{tmp_path}/a.es.gz is not a whole gzip, bz2 or xz file" in message
    (tmp_path / "plain.gz").write_bytes(b"plain text\n")
    assert "plain.gz is not a whole gzip, bz2 or xz file" in fails(
        tmp_path, source.model_copy(update={"tgt": "plain.gz"})
    )
    source = write_parquet(tmp_path, pairs)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[: int(len(content) * cut)])
    assert f"{tmp_path}/a.parquet is not a whole Parquet file" in fails(tmp_path, source)


@settings(max_examples=60)
@given(kind=st.sampled_from(["text", "tsv", "csv", "jsonl", "parquet"]), content=st.binary(max_size=60))
def test_any_bytes_give_pairs_or_a_user_error(kind: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a").write_bytes(content)
        message = None
        try:
            read(Path(folder), make_source(kind, "a"))
        except UserError as error:
            message = str(error)
        assert message is None or str(Path(folder) / "a") in message


def test_paths_and_descriptions(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    source = write_text(tmp_path, PAIRS)
    assert read(Path("~"), source) == PAIRS
    assert read(Path("/nowhere"), SourceConfig(src="~/a.en", tgt=str(tmp_path / "a.es"))) == PAIRS
    config = make_config(tmp_path)
    assert "NUL" in fails(tmp_path, SourceConfig(src="a\0", tgt="b"))
    assert source_of(source, config).files() == [tmp_path / "a.en", tmp_path / "a.es"]
    assert source_of(source, config).description == "a.en / a.es"
    assert source_of(SourceConfig(jsonl="x/a.jsonl"), config).description == "x/a.jsonl"
    assert source_of(SourceConfig(hub="a/b", config="en-es", split="dev"), config).description == "a/b (en-es, dev)"
    builtin = SourceConfig(builtin="en-es", split="test")
    assert source_of(builtin, config).description == "builtin:en-es (test)"
    assert source_of(source, config).place(17) == "a.en / a.es, line 17"
    assert source_of(builtin, config).place(17) == "builtin:en-es (test), row 17"
    assert source_of(SourceConfig(parquet="a.parquet"), config).place(17) == "a.parquet, row 17"


def test_import_stays_light() -> None:
    code = (
        "import sys, transformer_mt.data.corpus; print({'datasets', 'pyarrow', 'torch', 'pandas'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
