"""What a source cannot read is told with the file, the line and what to do."""

import bz2
import gc
import gzip
import lzma
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writers import PAIRS, fails, make_source, read, write_parquet, write_text

from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.errors import UserError


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


def test_text_of_parquet_that_changed_since_its_checksum(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pa.table({"src": ["The cat"], "tgt": ["El gato"]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False,
                   write_page_checksum=True)  # fmt: skip
    source = SourceConfig(parquet="a.parquet")
    assert read(tmp_path, source) == [("The cat", "El gato")]
    path.write_bytes(path.read_bytes().replace(b"gato", b"pato"))
    assert f"{path} is not a whole Parquet file" in fails(tmp_path, source)


def test_times_that_python_has_not_are_no_text(tmp_path: Path) -> None:
    """Beside text in one struct they do no harm."""
    path, source = tmp_path / "a.parquet", SourceConfig(parquet="a.parquet")
    late, texts = pa.array([None, 2**31 - 1], pa.int32()).cast(pa.date32()), pa.array(["one", "two"])
    pq.write_table(pa.table({"src": texts, "tgt": late}), path)
    assert f"{path}, row 2: column tgt holds a value of type Date" in fails(tmp_path, source)
    struct = pa.StructArray.from_arrays([texts, texts, late], names=["src", "tgt", "when"])
    pq.write_table(pa.table({"translation": struct}), path)
    assert read(tmp_path, source) == [("one", "one"), ("two", "two")]


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


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_several_packed_streams_in_one_file(pack: Any, tmp_path: Path) -> None:
    """Zeros may stand behind each; anything else would be a stream whose text is lost without a word."""
    streams = [pack(b"one\tuno\ntwo"), pack(b""), pack(b"\tdos\n")]
    source = SourceConfig(tsv="a")
    for padding in (b"", b"\0" * 4, b"\0" * 2**20):
        (tmp_path / "a").write_bytes(padding.join([*streams, b""]))
        assert read(tmp_path, source) == [("one", "uno"), ("two", "dos")]
    for rest in (b"more\ttext\n", b"\xff" + streams[2][1:], streams[0][:-1], streams[0][:2]):
        (tmp_path / "a").write_bytes(b"".join([pack(b"one\tuno\n"), rest]))
        assert f"{tmp_path}/a is not a whole gzip, bz2 or xz file" in fails(tmp_path, source)


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
