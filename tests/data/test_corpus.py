"""Joining, dropping blanks, and the cache: whole or not there, keyed by content, never wrong."""

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import ColumnsConfig, SourceConfig
from transformer_mt.data.batches.stream_window import stream_pairs
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.cache import cache_folder
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.data.sources import source as source_module
from transformer_mt.data.sources.hub import Hub
from transformer_mt.data.sources.kinds import KINDS, source_of, sources_of
from transformer_mt.data.sources.one_file import Tsv
from transformer_mt.data.sources.source import PairBlock, RawPair, Source
from transformer_mt.errors import UserError

TEXT = SourceConfig(src="a.en", tgt="a.es")
TSV = SourceConfig(tsv="b.tsv")


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    """A corpus of a text and a TSV source, with a cache of its own."""
    (tmp_path / "a.en").write_text("one\n \n\ntwo\n", encoding="utf-8")
    (tmp_path / "a.es").write_text("uno\nx\n\ndos\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("three\ttres\nfour\t\u3000\nfive\tcinco\n", encoding="utf-8")
    cache = str(tmp_path / "cache" / "deep")
    return DataConfig(root=str(tmp_path), train=[TEXT, TSV], validation=[TSV], cache_dir=cache)


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return list(zip(corpus.dataset["src"], corpus.dataset["tgt"], strict=True))


def entries(data: DataConfig) -> list[Path]:
    return sorted((cache_folder(data) / "corpora").iterdir())


@pytest.fixture
def no_reading(monkeypatch: Any) -> Any:
    """Once called, whoever parses a source fails the test."""

    def parse(_: Source) -> Iterator[PairBlock]:
        raise AssertionError("parsed again")

    def forbid() -> None:
        for kind in KINDS.values():
            monkeypatch.setattr(kind, "blocks", parse)

    return forbid


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
    ("content", "reason"), [("", "not a single line"), (" \t\n\n", "all 2 pairs have a blank side")]
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


# Damage


def cut(entry: Path) -> None:
    content = (entry / "data.arrow").read_bytes()
    (entry / "data.arrow").write_bytes(content[: len(content) // 2])


def cut_and_lie(entry: Path) -> None:
    """A shorter but well-formed table: the counts tell."""
    table = pa.ipc.open_stream((entry / "data.arrow").read_bytes()).read_all().slice(1)
    with pa.OSFile(str(entry / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    meta = json.loads((entry / "meta.json").read_text(encoding="utf-8"))
    meta["files"]["data.arrow"]["num_bytes"] = (entry / "data.arrow").stat().st_size
    (entry / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


def to_a_file(entry: Path) -> None:
    for path in entry.iterdir():
        path.unlink()
    entry.rmdir()
    entry.write_bytes(b"")


DAMAGE = {
    "table cut": cut,
    "table and size cut": cut_and_lie,
    "table gone": lambda entry: (entry / "data.arrow").unlink(),
    "table empty": lambda entry: (entry / "data.arrow").write_bytes(b""),
    "table of zeros": lambda entry: (entry / "data.arrow").write_bytes(bytes((entry / "data.arrow").stat().st_size)),
    "counts gone": lambda entry: (entry / "meta.json").unlink(),
    "counts cut": lambda entry: (entry / "meta.json").write_bytes((entry / "meta.json").read_bytes()[:9]),
    "counts empty": lambda entry: (entry / "meta.json").write_text("{}", encoding="utf-8"),
    "counts a list": lambda entry: (entry / "meta.json").write_text("[]", encoding="utf-8"),
    "a file": to_a_file,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entry_is_made_again_with_a_warning(damage: str, data: DataConfig, caplog: Any) -> None:
    first = pairs_of(load_corpus(data.train, data))
    (entry,) = entries(data)
    DAMAGE[damage](entry)
    with caplog.at_level(logging.WARNING):
        again = load_corpus(data.train, data)
    assert pairs_of(again) == first
    assert (again.num_read, again.num_blank) == (7, 3)
    assert str(entry) in caplog.text
    assert "damaged" in caplog.text
    assert entries(data) == [entry]
    caplog.clear()
    assert pairs_of(load_corpus(data.train, data)) == first
    assert caplog.text == ""


def test_damaged_entry_that_cannot_be_removed_is_named(data: DataConfig, monkeypatch: Any) -> None:
    load_corpus(data.train, data)
    (entry,) = entries(data)
    cut(entry)

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(UserError, match=rf"{entry} is damaged.*Permission denied. Delete this folder"):
        load_corpus(data.train, data)


KILLED = """
import os, signal, sys
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data import corpus
from transformer_mt.data.sources.text_pair import TextPair
data = DataConfig.model_validate_json(sys.argv[1])
def blocks(source, blocks=TextPair.blocks):
    for block in blocks(source):
        yield block
        os.kill(os.getpid(), signal.SIGKILL)
TextPair.blocks = blocks
corpus.load_corpus(data.train, data)
"""


def test_kill_in_the_middle_leaves_nothing_that_counts_as_whole(data: DataConfig) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, data.model_dump_json()], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = entries(data)
    assert left.name.startswith(".tmp-")
    assert len(load_corpus(data.train, data)) == 4
    assert left in entries(data)  # it may belong to a process that is still at work
    yesterday = time.time() - 25 * 3600
    for path in [*left.iterdir(), left]:
        os.utime(path, (yesterday, yesterday))
    load_corpus([TSV], data)
    assert left not in entries(data)
    assert len(entries(data)) == 2


def test_an_entry_is_on_the_disk_before_it_has_its_name(data: DataConfig, monkeypatch: Any) -> None:
    """Else a power cut could leave one that seems whole."""
    synced: dict[int, int] = {}
    named: list[str] = []
    replace = os.replace

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced[found.st_ino] = found.st_size

    def checked(folder: Path, entry: Path) -> None:
        for path in folder.iterdir():
            assert synced.get(path.stat().st_ino) == path.stat().st_size
            named.append(path.name)
        replace(folder, entry)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", checked)
    load_corpus(data.train, data)
    assert sorted(named) == ["data.arrow", "meta.json"]


def test_interrupt_leaves_nothing(data: DataConfig, monkeypatch: Any) -> None:
    def interrupt(_: Source) -> Iterator[PairBlock]:
        yield PairBlock(["a"], ["b"], [1])
        raise KeyboardInterrupt

    monkeypatch.setattr(KINDS["text"], "blocks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_corpus(data.train, data)
    assert entries(data) == []


def test_two_at_once_both_end_fine(data: DataConfig, monkeypatch: Any) -> None:
    inner: list[Corpus] = []

    def read_beside_another(source: Tsv) -> Iterator[PairBlock]:
        monkeypatch.setattr(Tsv, "blocks", Source.blocks)
        inner.append(load_corpus([TSV], data))  # begins and ends while the outer one writes
        yield from Source.blocks(source)

    monkeypatch.setattr(Tsv, "blocks", read_beside_another)
    outer = load_corpus([TSV], data)
    assert pairs_of(outer) == pairs_of(inner[0]) == [("three", "tres"), ("five", "cinco")]
    assert [entry.name for entry in entries(data)] == [outer.fingerprint]


# The folder


def test_cache_that_cannot_be_written_names_the_setting(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way", encoding="utf-8")
    with pytest.raises(UserError, match=rf"{tmp_path}/cache/.* cannot be written: Not a directory. Set data.cache_dir"):
        load_corpus(data.train, data)
    (tmp_path / "hub").mkdir()  # of a kind that `datasets` reads, which writes a copy
    table = pa.table({"src": ["a"], "tgt": ["c"]})
    with pa.OSFile(str(tmp_path / "hub" / "train.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    with pytest.raises(UserError, match=r"cannot be written: Not a directory. Set data.cache_dir"):
        list(source_of(SourceConfig(hub="hub", split="train"), data).pairs())


def test_no_room_on_the_disk(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("x" * 100_000 + "\ty\n", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(UserError, match=r"There is no room for the cache entry .*data.cache_dir"):
            load_corpus([TSV], data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert entries(data) == []
    assert len(load_corpus([TSV], data)) == 1


def test_where_the_cache_is(data: DataConfig, tmp_path: Path, monkeypatch: Any) -> None:
    assert cache_folder(data) == tmp_path / "cache" / "deep"
    with pytest.raises(UserError, match="NUL"):
        cache_folder(data.model_copy(update={"cache_dir": "a\0"}))
    with pytest.raises(UserError, match=r"The path of the cache folder, 'a\\udcff', is not UTF-8\."):
        cache_folder(data.model_copy(update={"cache_dir": "a\udcff"}))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(data.model_copy(update={"cache_dir": "~/c"})) == tmp_path / "c"
    default = data.model_copy(update={"cache_dir": None})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(default) == tmp_path / "xdg" / "transformer_mt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    for platform, expected in (("linux", ".cache"), ("darwin", "Library/Caches"), ("win32", "AppData/Local")):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder(default) == tmp_path / expected / "transformer_mt"
