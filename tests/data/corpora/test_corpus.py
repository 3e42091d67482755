"""Joining and dropping blanks, and which key an entry of the cache has."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from entries import TEXT, TSV, entries, pairs_of

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import ColumnsConfig, SourceConfig
from transformer_mt.data.batches.stream_window import stream_pairs
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.sources import source as source_module
from transformer_mt.data.sources.hub import Hub
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.data.sources.one_file import Tsv
from transformer_mt.data.sources.source import PairBlock, RawPair, Source
from transformer_mt.errors import UserError


def test_sources_are_joined_and_blank_pairs_dropped_as_pairs(data: DataConfig, capfd: Any) -> None:
    corpus = load_corpus(data.train, data)
    assert pairs_of(corpus) == [("one", "uno"), ("two", "dos"), ("three", "tres"), ("five", "cinco")]
    assert (len(corpus), corpus.num_read, corpus.num_blank) == (4, 7, 3)
    assert corpus.dataset["line"][:] == [1, 4, 1, 3]
    assert corpus.dataset["source"][:] == [0, 0, 1, 1]
    assert corpus.descriptions == ["a.en / a.es", "b.tsv"]
    assert corpus.where(1) == "a.en / a.es, line 4"
    assert corpus.where(3) == "b.tsv, line 3"
    assert {name: str(value.dtype) for name, value in corpus.dataset.features.items()} == {
        "src": "string",
        "tgt": "string",
        "line": "int64",
        "source": "int32",
    }
    assert capfd.readouterr() == ("", "")


def test_it_is_mapped_into_memory_and_the_entry_is_whole(data: DataConfig) -> None:
    corpus = load_corpus(data.train, data)
    (entry,) = entries(data)
    assert entry.name == corpus.fingerprint
    assert [file["filename"] for file in corpus.dataset.cache_files] == [str(entry / "data.arrow")]
    assert sorted(path.name for path in entry.iterdir()) == ["data.arrow", "meta.json"]


def test_many_chunks_keep_their_order(data: DataConfig, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(source_module, "BLOCK_PAIRS", 7)
    monkeypatch.setattr(source_module, "BLOCK_CHARACTERS", 50)
    rows = [("" if 20 <= n < 60 else "x" * (n % 31 + 1), str(n)) for n in range(200)]
    (tmp_path / "b.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in rows), encoding="utf-8")
    corpus = load_corpus([TSV], data)
    assert pairs_of(corpus) == [row for row in rows if row[0]]
    assert (corpus.num_read, corpus.num_blank) == (200, 40)
    assert corpus.where(20) == "b.tsv, line 61"


def test_pairs_are_gone_through_as_often_as_one_likes(data: DataConfig) -> None:
    corpus = load_corpus(data.train, data)
    assert list(corpus) == list(corpus) == pairs_of(corpus)
    for _ in range(2):
        assert list(corpus.texts(0)) == [["one", "two"], ["three", "five"]]
        assert list(corpus.texts(1)) == [["uno", "dos"], ["tres", "cinco"]]


def test_pairs_that_got_lost_since_they_were_mapped_are_missed(data: DataConfig) -> None:
    """A table may be cut where it seems to end; what it lacks would not be trained on, and nobody told."""
    corpus = load_corpus(data.train, data)
    (entry,) = entries(data)
    path = entry / "data.arrow"
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as table:
        schema, first = table.schema, table.read_next_batch()
    path.unlink()  # what is mapped stays
    with pytest.raises(UserError, match=r"pairs of a\.en / a\.es, b\.tsv cannot be read: .+ Start again\."):
        list(corpus)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_batch(first)
    with pytest.raises(UserError, match=r"Of the 4 cached pairs of a\.en / a\.es, b\.tsv only 2 are left\."):
        list(corpus)


def test_second_load_parses_nothing_wherever_the_files_are(data: DataConfig, tmp_path: Path, no_reading: Any) -> None:
    first = load_corpus(data.train, data)
    no_reading()
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("a.en", "a.es", "b.tsv"):
        (tmp_path / name).rename(moved / ("new_" + name))
        os.utime(moved / ("new_" + name), (1, 1))
    sources = [SourceConfig(src="new_a.en", tgt="new_a.es"), SourceConfig(tsv="new_b.tsv")]
    second = load_corpus(sources, data.model_copy(update={"root": str(moved), "src_lang": "xx"}))
    assert second.fingerprint == first.fingerprint
    assert pairs_of(second) == pairs_of(first)
    assert (second.num_read, second.num_blank) == (first.num_read, first.num_blank)
    assert second.where(3) == "new_b.tsv, line 3"


def test_changed_content_of_equal_size_and_time_is_seen(data: DataConfig, tmp_path: Path) -> None:
    first = load_corpus(data.train, data)
    before = (tmp_path / "a.es").stat()
    (tmp_path / "a.es").write_text("UNO\nx\n\ndos\n", encoding="utf-8")
    os.utime(tmp_path / "a.es", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = load_corpus(data.train, data)
    assert second.fingerprint != first.fingerprint
    assert pairs_of(second)[0] == ("one", "UNO")


def test_settings_that_matter_change_the_key(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("src,tgt,en,de\ns,t,e,d\n", encoding="utf-8")
    plain, chosen = SourceConfig(csv="c.csv"), SourceConfig(csv="c.csv", columns=ColumnsConfig(src="de", tgt="src"))
    german = data.model_copy(update={"src_lang": "en", "tgt_lang": "de"})
    found = [load_corpus([plain], data), load_corpus([plain], german), load_corpus([chosen], data)]
    assert [pairs_of(corpus) for corpus in found] == [[("s", "t")], [("e", "d")], [("d", "s")]]
    swapped = SourceConfig(src="a.es", tgt="a.en")
    keys = {load_corpus(s, data).fingerprint for s in ([TEXT], [swapped], [TEXT, TSV], [TSV, TEXT], [TEXT, TEXT])}
    keys |= {corpus.fingerprint for corpus in found}
    assert len(keys) == 8
    numbered = SourceConfig(tsv="b.tsv", columns=ColumnsConfig(src=1, tgt=2))
    assert load_corpus([numbered], data).fingerprint == load_corpus([TSV], data).fingerprint


def test_hub_folder_is_cached_by_content(data: DataConfig, tmp_path: Path, no_reading: Any, monkeypatch: Any) -> None:
    (tmp_path / "hub").mkdir()
    path = tmp_path / "hub" / "train.parquet"
    source = SourceConfig(hub="hub", split="train")
    pq.write_table(pa.table({"src": ["a", "b"], "tgt": ["c", "d"]}), path)
    first = load_corpus([source], data)
    before = path.stat()
    pq.write_table(pa.table({"src": ["a", "b"], "tgt": ["c", "e"]}), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = load_corpus([source], data)
    assert pairs_of(first) == [("a", "c"), ("b", "d")]
    assert pairs_of(second) == [("a", "c"), ("b", "e")]
    assert [entry.name for entry in entries(data)] == sorted([first.fingerprint, second.fingerprint])
    no_reading()
    assert load_corpus([source], data).fingerprint == second.fingerprint


def test_builtin_corpus_is_keyed_as_when_its_grammar_was_in_the_package(data: DataConfig, no_reading: Any) -> None:
    test, validation = (SourceConfig(builtin="en-es", split=split) for split in ("test", "validation"))
    first = load_corpus([test], data)
    assert pairs_of(first) == builtin_pairs("test")
    assert load_corpus([validation], data).fingerprint == "945c4674342db3892410015c87efaf2e438304d5"
    assert first.fingerprint == "4c7b32ff02a8251943f8c2ca90d8404f09270c62"
    no_reading()
    assert load_corpus([test], data).fingerprint == first.fingerprint


def test_corpus_without_files_is_keyed_by_its_pairs(data: DataConfig, monkeypatch: Any) -> None:
    pairs = [("a", "b"), ("", "c")]
    monkeypatch.setattr(Hub, "_splits", lambda _: {})
    monkeypatch.setattr(Hub, "pairs", lambda _: iter([RawPair(*pair, 1) for pair in pairs]))
    source = SourceConfig(hub="some/name", split="test")
    first = load_corpus([source], data)
    assert (pairs_of(first), first.num_blank) == ([("a", "b")], 1)
    assert load_corpus([source], data).fingerprint == first.fingerprint
    pairs[0] = ("ab", "")
    with pytest.raises(UserError, match=r"is empty: all 2 pairs have a blank side"):
        load_corpus([source], data)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "not a single line"), ("\n", "1 pair has a blank side"), (" \t\n\n", "all 2 pairs have a blank side")],
)
def test_empty_corpus(content: str, reason: str, data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"The corpus b.tsv is empty: .*{reason}"):
        load_corpus([TSV], data)
    assert entries(data) == []


def test_a_source_of_several_that_holds_nothing_is_named(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_bytes(b"")
    sources = [TSV, SourceConfig(tsv="empty.tsv")]
    message = "empty.tsv holds not a single pair. Check it, or take it out of the sources."
    with pytest.raises(UserError, match=message):
        load_corpus(sources, data)
    with pytest.raises(UserError, match=message):
        list(stream_pairs(sources_of(sources, data)))


def test_error_in_a_source_leaves_no_entry(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a.en has 1 line and .*a.es has 4"):
        load_corpus(data.train, data)
    assert entries(data) == []


def test_file_that_changes_while_it_is_read_is_refused(data: DataConfig, tmp_path: Path, monkeypatch: Any) -> None:
    def read_and_change(source: Tsv) -> Iterator[PairBlock]:
        yield from Source.blocks(source)
        with (tmp_path / "b.tsv").open("a", encoding="utf-8") as file:
            file.write("six\tseis\n")

    monkeypatch.setattr(Tsv, "blocks", read_and_change)
    with pytest.raises(UserError, match=r"b.tsv changed while being read"):
        load_corpus([TSV], data)
    assert entries(data) == []
