"""Lines that no model takes: bounded memory, a pair less, and nothing shifts."""

import bz2
import csv
import gzip
import io
import logging
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config
from writers import fails, make_config, make_source, write_csv, write_jsonl, write_text, write_tsv

from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.longest_line import BEYOND, LONGEST_LINE, is_beyond
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.data.sources.kinds import source_of
from transformer_mt.errors import UserError

LONG = "wörd " * (LONGEST_LINE // 6 + 1)
PAIRS = [("a", "b"), (LONG, "c"), ("d", "e"), ("f", "x" + LONG), ("g", "h")]
WRITERS = {"text": write_text, "tsv": write_tsv, "csv": write_csv, "jsonl": write_jsonl}
PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * LONGEST_LINE, False),
        ("x" * (LONGEST_LINE + 1), True),
        ("é" * (LONGEST_LINE // 2), False),
        ("é" * (LONGEST_LINE // 2) + "x", True),
        ("😀" * (LONGEST_LINE // 4), False),
        ("😀" * (LONGEST_LINE // 4) + "x", True),
    ],
    ids=["ascii", "ascii and 1", "two bytes", "two bytes and 1", "four bytes", "four bytes and 1"],
)
def test_the_limit_is_of_bytes(text: str, expected: bool) -> None:
    assert is_beyond(text) == expected


@pytest.mark.parametrize(
    ("kind", "packing"),
    [  # every kind reads lines from the same place, below which files are unpacked
        pytest.param(kind, packing, marks=[] if kind == "text" or not packing else pytest.mark.slow)
        for kind in WRITERS
        for packing in PACKERS
    ],
)
def test_a_pair_with_a_longer_line_is_left_out_and_told(kind: str, packing: str, tmp_path: Path, caplog: Any) -> None:
    source = WRITERS[kind](tmp_path, PAIRS)
    names = {key: name + packing for key, name in source.model_dump(exclude_defaults=True).items()}
    for name in source.model_dump(exclude_defaults=True).values():
        (tmp_path / (name + packing)).write_bytes(PACKERS[packing]((tmp_path / name).read_bytes()))
    source = SourceConfig.model_validate(names)
    data = make_config(tmp_path, cache_dir=str(tmp_path / "cache"))
    line = 3 if kind == "csv" else 2
    for _ in range(2):  # read, and found in the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            corpus = load_corpus([source], data)
        assert list(corpus) == [("a", "b"), ("d", "e"), ("g", "h")]
        assert (corpus.num_read, corpus.num_blank, corpus.num_beyond) == (5, 0, 2)
        where = f"{corpus.descriptions[0]}, line {line}"
        assert f"{where}: a side is longer than 1,048,576 bytes; the pair is left out. So is 1 more." in caplog.text
        with pytest.raises(UserError, match=rf"{where}: a side is longer than 1,048,576 bytes, which no model takes"):
            load_corpus([source], data.model_copy(update={"too_long": "error"}))


@pytest.mark.parametrize("too_long", ["filter", "error"])
def test_a_stream_leaves_them_out_too(too_long: str, tmp_path: Path) -> None:
    write_text(tmp_path, PAIRS)
    (tmp_path / "b.en").write_text("a\nd\n", encoding="utf-8")
    (tmp_path / "b.es").write_text("b\ne\n", encoding="utf-8")
    data = {"train": [{"src": "a.en", "tgt": "a.es"}], "validation": [{"src": "b.en", "tgt": "b.es"}],
            "streaming": True, "too_long": too_long, "cache_dir": str(tmp_path / "cache")}  # fmt: skip
    config = toy_config(tmp_path, data=data)
    if too_long == "error":
        with pytest.raises(UserError, match=r"a.en / a.es, line 2: a side is longer"):
            prepare_training_data(config)
        return
    stream = prepare_training_data(config).train
    assert isinstance(stream, Stream)
    window = stream.beginning
    assert (len(window), window.num_read, window.num_too_long, window.num_blank) == (3, 5, 2, 0)
    assert window.lines.tolist() == [1, 3, 5]


QUOTED = ['"', '""', "\n", ",", "\n,\n", '"\n"', '\n"a",b\n']


@pytest.mark.parametrize("begin", ["", *QUOTED])
def test_rows_of_csv_end_where_they_end(begin: str, tmp_path: Path) -> None:
    """Quotes that a longer line opens or closes are opened or closed, though what it holds is forgotten."""
    rows = [("a", "b"), *((begin + LONG.strip() + end, "c") for end in ("", *QUOTED)), ("d", "e\nf")]
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows([("src", "tgt"), *rows])
    (tmp_path / "a.csv").write_text(out.getvalue(), encoding="utf-8")
    pairs = list(source_of(SourceConfig(csv="a.csv"), make_config(tmp_path)).pairs())
    assert [(pair.src, pair.tgt) for pair in (pairs[0], pairs[-1])] == [("a", "b"), ("d", "e\nf")]
    assert [is_beyond(pair.src) for pair in pairs] == [False, *[True] * (len(QUOTED) + 1), False]


def test_a_line_that_no_quote_opened_is_no_part_of_another_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'src,tgt\n5" disk,b\n{LONG},"c"\nd,e\n', encoding="utf-8")
    pairs = list(source_of(SourceConfig(csv="a.csv"), make_config(tmp_path)).pairs())
    assert [(pair.src, pair.line) for pair in pairs] == [('5" disk', 2), (BEYOND, 3), ("d", 4)]


def test_a_corpus_of_nothing_else_is_empty(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path, [(LONG, "a"), ("", "b")])
    with pytest.raises(UserError, match=r"all 2 pairs have a side that is blank or over 1,048,576 bytes"):
        load_corpus([source], make_config(tmp_path, cache_dir=str(tmp_path / "cache")))


def test_a_header_that_is_too_long_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"src,{LONG},tgt\na,b,c\n", encoding="utf-8")
    assert "line 1 (the header): no columns src and tgt" in fails(tmp_path, SourceConfig(csv="a.csv"))


@pytest.mark.parametrize("kind", WRITERS)
def test_memory_does_not_grow_with_a_line(kind: str, tmp_path: Path) -> None:
    """100 MB of zeros, which take no room on most disks."""
    first = {"csv": b"src,tgt\n", "tsv": b"a\tb\n", "jsonl": b'{"src": "a", "tgt": "b"}\n', "text": b"a\n"}[kind]
    with (tmp_path / "a").open("wb") as file:
        file.write(first)
        file.truncate(100_000_000)
        file.seek(0, io.SEEK_END)
        file.write(b"\n" + first)
    tracemalloc.start()
    try:
        pairs = list(source_of(make_source(kind, "a"), make_config(tmp_path)).pairs())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [is_beyond(pair.src) for pair in pairs] == [False, True, False][kind == "csv" :]
    assert peak < 30_000_000
