"""An entry of the cache is whole or not there: damage, kills, two at once, no room."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import full_disk
from entries import TSV, entries, pairs_of

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.cache import cache_folder
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.data.sources.kinds import KINDS, source_of
from transformer_mt.data.sources.one_file import Tsv
from transformer_mt.data.sources.source import PairBlock, Source
from transformer_mt.errors import UserError


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


def test_an_entry_is_on_the_disk_before_it_has_its_name(data: DataConfig, synced: dict, monkeypatch: Any) -> None:
    """Else a power cut could leave one that seems whole."""
    named: list[str] = []
    replace = os.replace

    def checked(folder: Path, entry: Path) -> None:
        for path in folder.iterdir():
            assert synced.get(path.stat().st_ino) == path.stat().st_size
            named.append(path.name)
        replace(folder, entry)

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
    with full_disk(50_000), pytest.raises(UserError, match=r"There is no room for the cache entry .*data.cache_dir"):
        load_corpus([TSV], data)
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
