"""Several processes count words and encode pairs: the same vocabulary, the same ids, and nothing is left behind."""

import errno
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import on_linux
from threads import torch_threads
from toy import all_entries, toy_config, write_toy_corpus

from transformer_mt.data import tokenizers
from transformer_mt.data.id_file import IdWriter
from transformer_mt.data.preparation import PreparedData, prepare_data
from transformer_mt.data.sources import files
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import Workers


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Two cores, and pieces so small that each has many; what is given are the processes that were begun."""
    found: list[Any] = []

    def begin(workers: Workers, work: Any, before: Any = Workers._begin) -> None:
        before(workers, work)
        found.append(workers)

    monkeypatch.setattr(Workers, "_begin", begin)
    monkeypatch.setattr(files, "BLOCK_BYTES", 300)
    monkeypatch.setattr(tokenizers, "COUNTED_AT_ONCE", 200)
    with torch_threads(2):
        yield found
        assert not multiprocessing.active_children()


def prepare(folder: Path, kind: str, cache: str) -> PreparedData:
    data = {"allow_left_out": True, "cache_dir": str(folder / cache)}
    tokenizer = {"kind": kind, "vocab_size": 300, "joint": False, **all_entries(kind)}
    corpus = write_toy_corpus(folder / "data")
    return prepare_data(toy_config(corpus, data=data, tokenizer=tokenizer))


@on_linux
@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_two_processes_find_what_one_finds(kind: str, tmp_path: Path, begun: list[Any]) -> None:
    together = prepare(tmp_path, kind, "together")
    assert len(begun) >= (6 if kind == "word" else 2)  # two to encode, and where words are counted two for each side
    begun.clear()
    with torch_threads(1):
        alone = prepare(tmp_path, kind, "alone")
    assert begun == []
    for side in ("src", "tgt"):
        one, other = (getattr(data, f"{side}_tokenizer").backend.to_str() for data in (together, alone))
        assert one == other
        for split in ("train", "validation"):
            ids, expected = (getattr(getattr(data, split).ids, side) for data in (together, alone))
            assert np.array_equal(ids.lengths, expected.lengths)
            assert np.array_equal(ids.ids, expected.ids)
    assert together.train.unknown_shares() == alone.train.unknown_shares()
    assert together.validation.unknown_shares() == alone.validation.unknown_shares()


def test_where_another_thread_computes_there_is_one_process(tmp_path: Path, begun: list[Any]) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        data = prepare(tmp_path, "word", "cache")
    finally:
        done.set()
        thread.join()
    assert begun == []
    assert len(data.train) == 120


@on_linux
def test_a_process_that_is_killed_is_one_message_and_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = os.getpid()

    def encode(tokenizer: Tokenizer, texts: list[str], before: Any = Tokenizer.encode_flat) -> Any:
        if os.getpid() != first:
            os.kill(os.getpid(), signal.SIGKILL)
        return before(tokenizer, texts)

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode_flat", encode)
        with pytest.raises(
            UserError,
            match=r"^A process of tokenizing ended with exit status -9, killed perhaps for want of memory. Free some "
            r"memory, or take fewer processes with OMP_NUM_THREADS=1.$",
        ):
            prepare(tmp_path, "word", "cache")
    assert list((tmp_path / "cache" / "encoded").iterdir()) == []
    assert len(prepare(tmp_path, "word", "cache").train) == 120


@on_linux
def test_a_full_disk_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[Any]) -> None:
    def write(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IdWriter, "write", write)
    with pytest.raises(UserError, match="There is no room for the cache entry"):
        prepare(tmp_path, "word", "cache")
    assert len(begun) == 6
    assert not multiprocessing.active_children()
