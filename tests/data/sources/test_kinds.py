"""Every kind of source gives back exactly the pairs that were written."""

import bz2
import gzip
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
    read,
    write_csv,
    write_hub,
    write_jsonl,
    write_text,
    write_tsv,
)

from transformer_mt.config.sections.sources import SOURCE_KINDS, SourceConfig
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.sources.kinds import source_of
from transformer_mt.data.sources.source import RawPair


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


@pytest.mark.parametrize("write", WRITERS)
def test_words_for_missing_values_and_odd_line_ends_are_text(write: Any, tmp_path: Path) -> None:
    assert read(tmp_path, write(tmp_path, PAIRS)) == PAIRS


PACKS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("write", [write_text, write_tsv, write_csv, write_jsonl])
@pytest.mark.parametrize(("kind", "suffix"), [(".gz", ".gz"), (".gz", ""), (".bz2", ""), (".xz", "")])
def test_packed_files_are_seen_by_suffix_and_by_their_first_bytes(
    write: Any, kind: str, suffix: str, tmp_path: Path
) -> None:
    source = write(tmp_path, PAIRS)
    names = {}
    for key, name in source.model_dump(exclude_defaults=True).items():
        (tmp_path / (name + suffix)).write_bytes(PACKS[kind]((tmp_path / name).read_bytes()))
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


def test_csv_rows_may_span_lines_and_are_numbered_by_their_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,es,en\n1,"uno\ndos, ""tres""","one\r\ntwo"\n\n2,a\rb,c\n')
    pairs = list(source_of(SourceConfig(csv="a.csv"), make_config(tmp_path, src_lang="en", tgt_lang="es")).pairs())
    assert pairs == [RawPair("one\r\ntwo", 'uno\ndos, "tres"', 2), RawPair("", "", 5), RawPair("c", "a\rb", 6)]


def test_a_long_csv_cell_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, write_csv(tmp_path, [("x" * 300_000, "y")])) == [("x" * 300_000, "y")]


def test_every_arrow_type_of_text(tmp_path: Path) -> None:
    plain = pa.array(["a", "b", "a"])
    pq.write_table(pa.table({"src": plain.dictionary_encode(), "tgt": plain.cast(pa.large_string())}), tmp_path / "a")
    assert read(tmp_path, SourceConfig(parquet="a")) == [("a", "a"), ("b", "b"), ("a", "a")]
    struct = pa.StructArray.from_arrays([plain.dictionary_encode(), plain], names=["src", "tgt"])
    pq.write_table(pa.table({"translation": struct}), tmp_path / "a", row_group_size=2)
    assert read(tmp_path, SourceConfig(parquet="a")) == [("a", "a"), ("b", "b"), ("a", "a")]


def test_lines_before_the_header_of_csv_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\r\n\nsrc,tgt\na,b\n")
    assert list(source_of(SourceConfig(csv="a.csv"), make_config(tmp_path)).pairs()) == [RawPair("a", "b", 4)]


@pytest.mark.parametrize("ending", PACKS)
def test_packed_files_are_unpacked(ending: str, tmp_path: Path) -> None:
    name = f"a.tsv{ending}"
    content = PACKS[ending](b"a\tb\nc\td\n")
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
