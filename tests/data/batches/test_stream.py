"""A stream read window by window: every pair once an epoch, in the order of a function, as a corpus would give it."""

import gzip
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy import toy_config, toy_pairs, write_toy_corpus
from writers import WRITERS, write_hub

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.config.special_ids import SPECIAL_TOKENS
from transformer_mt.data.batches.stream import Stream, StreamError, StreamPlan
from transformer_mt.data.batches.stream_window import Window
from transformer_mt.data.preparation import (
    PreparedData,
    Split,
    TrainingData,
    prepare_data,
    prepare_training_data,
    report_lines,
)
from transformer_mt.errors import UserError

NUM_PAIRS = 120


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("stream") / "data", NUM_PAIRS)


@pytest.fixture(scope="module")
def whole(corpus: Path) -> PreparedData:
    return prepare_data(toy_config(corpus))


def streamed(corpus: Path, window: int, **data: Any) -> RunConfig:
    return toy_config(corpus, data={"streaming": True, "shuffle_window": window, **data})


def make_stream(whole: PreparedData, corpus: Path, window: int, **data: Any) -> Stream:
    """With the tokenizers of the whole, which are quicker to have."""
    return Stream(streamed(corpus, window, **data), whole.src_tokenizer, whole.tgt_tokenizer)


def ids_of(split: Stream | Split, rows: np.ndarray) -> list[tuple[list[int], list[int]]]:
    batch = split.batch(rows)
    src, tgt = ([[i for i in row if i] for row in side.tolist()] for side in (batch.src, batch.tgt_out))
    return list(zip(src, tgt, strict=True))


def lines_of(stream: Stream, epoch: int, at_once: int = 3) -> list[list[int]]:
    """The lines at which the pairs of each micro-batch stand, asked while they are there."""
    plan, found = stream.plan(64, 3, epoch), []
    while plan.has(len(found)):
        for rows in plan.take(len(found), at_once):
            assert len(rows) * max(stream.src_lengths[rows].max(), stream.tgt_lengths[rows].max()) <= 64
            found.append([int(stream.where(int(row)).rpartition(" ")[2]) for row in rows])
    return found


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(5, 150), st.integers(1, 7), st.integers(0, 3))
def test_every_pair_once_an_epoch_and_none_is_a_window_away(
    corpus: Path, whole: PreparedData, window: int, at_once: int, epoch: int
) -> None:
    """Also in updates of more micro-batches than a window has; and the order does not depend on how one asks."""
    lines = lines_of(make_stream(whole, corpus, window), epoch, at_once)
    flat = [line for batch in lines for line in batch]
    assert sorted(flat) == list(range(1, NUM_PAIRS + 1))
    assert [(line - 1) // window for line in flat] == sorted((line - 1) // window for line in flat)
    assert lines_of(make_stream(whole, corpus, window), epoch, at_once=1) == lines


def test_windows_and_epochs_differ_in_order(corpus: Path, whole: PreparedData) -> None:
    stream = make_stream(whole, corpus, 60)
    first, second = lines_of(stream, 0), lines_of(stream, 1)
    assert first != second
    assert [line for batch in first for line in batch] != sorted(line for batch in first for line in batch)
    halves = [[[(line - 1) % 60 for line in batch] for batch in first if (batch[0] > 60) == half] for half in (0, 1)]
    assert halves[0] != halves[1]


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_window_as_large_as_the_corpus_gives_the_batches_of_the_corpus(
    corpus: Path, whole: PreparedData, epoch: int
) -> None:
    """The same pairs as the same ids in the same micro-batches in the same order."""
    stream = make_stream(whole, corpus, NUM_PAIRS + 1)
    batches = whole.train.plan(64, 3, epoch).known()
    plan = stream.plan(64, 3, epoch)
    ours = plan.take(0, len(batches))
    assert not plan.has(len(batches))
    for rows, expected in zip(ours, batches, strict=True):
        assert ids_of(stream, rows) == ids_of(whole.train, expected)
        assert stream.src_lengths[rows].tolist() == whole.train.src_lengths[expected].tolist()
        assert [stream.where(int(row)) for row in rows] == [whole.train.where(int(row)) for row in expected]


@pytest.mark.parametrize("window", [7, 60, NUM_PAIRS, 1000])
def test_every_place_is_found_again(corpus: Path, whole: PreparedData, window: int) -> None:
    """From what a checkpoint keeps, in the middle of a window and at its ends, the epoch goes on as it did."""
    straight = [
        ids for stream in [make_stream(whole, corpus, window)] for ids in _epoch_ids(stream, stream.plan(64, 3, 1), 0)
    ]
    for begin in range(0, len(straight), 4):
        first = make_stream(whole, corpus, window)
        plan = first.plan(64, 3, 1)
        for taken in range(begin):
            plan.take(taken, 1)
        second = make_stream(whole, corpus, window)
        second.go_on_from(1, plan.place(begin))
        assert _epoch_ids(second, second.plan(64, 3, 1), begin) == straight[begin:]


def _epoch_ids(stream: Stream, plan: StreamPlan, begin: int) -> list:
    found = []
    while plan.has(begin + len(found)):
        (rows,) = plan.take(begin + len(found), 1)
        found.append(ids_of(stream, rows))
    return found


def test_windows_that_are_past_are_not_kept(corpus: Path, whole: PreparedData) -> None:
    """But for the first, out of which the report is made, and the last two: an update may be asked for again."""
    stream = make_stream(whole, corpus, 10)
    plan, number = stream.plan(64, 3, 0), 0
    seen: dict[int, weakref.ref[Window]] = {}
    while plan.has(number):
        (rows,) = plan.take(number, 1)
        number += 1
        place = int(rows[0]) // 10
        seen[place] = weakref.ref(stream.window(0, place)[0])
    assert list(seen) == list(range(12))
    assert {place for place, window in seen.items() if window() is not None} <= {0, 10, 11}


@pytest.mark.parametrize("write", [*WRITERS, write_hub], ids=lambda write: write.__name__)
def test_every_kind_of_source_streams_what_it_holds(tmp_path: Path, write: Any) -> None:
    """In its order, and nothing lands in the cache but the validation split."""
    pairs = toy_pairs(30)
    source: SourceConfig = write(tmp_path, pairs)
    assert _texts(_data_of(tmp_path, [source.model_dump(exclude_defaults=True)], 7)) == pairs
    _refuse_cached(tmp_path, 1)


def test_gzip_and_several_sources_in_their_order(tmp_path: Path) -> None:
    pairs = toy_pairs(25)
    for language, side in zip(("en", "es"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in side).encode()
        (tmp_path / f"x.{language}.gz").write_bytes(gzip.compress(text))
    (tmp_path / "y.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs[:5]))
    data = _data_of(tmp_path, [{"src": "x.en.gz", "tgt": "x.es.gz"}, {"tsv": "y.tsv"}], 10)
    assert _texts(data) == pairs + pairs[:5]
    places = {data.train.where(int(row)) for rows in data.train.plan(64, 3, 1).take(0, 1000) for row in rows}
    expected = {f"x.en.gz / x.es.gz, line {i}" for i in range(1, 26)} | {f"y.tsv, line {i}" for i in range(1, 6)}
    assert places == expected


def _data_of(folder: Path, sources: list[dict], window: int, **model: Any) -> TrainingData:
    corpus = write_toy_corpus(folder / "valid")
    validation = [{"src": str(corpus / "valid.en"), "tgt": str(corpus / "valid.es")}]
    data = {"train": sources, "validation": validation, "cache_dir": str(folder / "cache")}
    config = toy_config(folder, data={"streaming": True, "shuffle_window": window, **data}, model=model)
    return prepare_training_data(config)


def _stream_of(folder: Path, sources: list[dict], window: int, **model: Any) -> Stream:
    stream = _data_of(folder, sources, window, **model).train
    assert isinstance(stream, Stream)
    return stream


def _texts(data: TrainingData) -> list[tuple[str, str]]:
    """All pairs in the order of the source, out of its ids."""
    plan, number = data.train.plan(64, 3, 0), 0
    pairs: dict[int, tuple[str, str]] = {}
    while plan.has(number):
        (rows,) = plan.take(number, 1)
        number += 1
        for row, (src, tgt) in zip(rows.tolist(), ids_of(data.train, rows), strict=True):
            pairs[row] = data.src_tokenizer.decode(src), data.tgt_tokenizer.decode(tgt)
    return [pairs[row] for row in sorted(pairs)]


def _refuse_cached(folder: Path, corpora: int) -> None:
    """Only the validation split has tables, and there are no tokenizers."""
    entries = {kind.name: [entry.name for entry in kind.iterdir()] for kind in (folder / "cache").iterdir()}
    assert {name: len(found) for name, found in entries.items() if found} == {"corpora": corpora, "encoded": corpora}


def test_what_is_left_out_is_counted_and_told_at_the_end(tmp_path: Path) -> None:
    pairs = toy_pairs(20)
    long = " ".join(["one"] * 30)
    lines = [*pairs[:9], ("  ", "uno"), *pairs[9:], (long, "uno"), ("one", "")]
    (tmp_path / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in lines))
    assert _texts(_data_of(tmp_path, [{"tsv": "a.tsv"}], 8)) == pairs
    stream = _stream_of(tmp_path, [{"tsv": "a.tsv"}], 8)
    plan, number = stream.plan(64, 3, 0), 0
    while plan.has(number):
        plan.take(number, 1)
        number += 1
    assert plan.summary() == "epoch 1 is over: 23 pairs were read, 2 with a blank side dropped, 1 too long left out"
    resumed = _stream_of(tmp_path, [{"tsv": "a.tsv"}], 8)
    resumed.go_on_from(0, plan.place(number - 1))
    again = resumed.plan(64, 3, 0)
    assert not again.has(number)
    assert again.summary() == plan.summary()


@pytest.mark.parametrize("line", ["{}\tuno\n", "one\t{}\n"])
def test_the_longest_pair_that_fits_is_kept(tmp_path: Path, whole: PreparedData, line: str) -> None:
    """A model of 16 positions has room for 15 tokens and EOS."""
    (tmp_path / "a.tsv").write_text("".join(line.format("one " * length) for length in (15, 16)))
    assert lines_of(make_stream(whole, tmp_path, 10, train=[{"tsv": "a.tsv"}]), 0) == [[1]]


def test_the_report_says_what_is_known_and_what_is_not(corpus: Path) -> None:
    data = prepare_training_data(streamed(corpus, 50))
    report = "\n".join(report_lines(data))
    assert "train: a stream (train.en / train.es), shuffled within 50 pairs at a time" in report
    assert "its first window: 50 pairs" in report
    shown = [line.split("  ->  ")[0].strip() for line in report.split("\n") if "  ->  " in line]
    assert set(zip(shown[::2], shown[1::2], strict=True)) <= set(toy_pairs(51))
    assert "of a stream it is not known how many of these sentences are in it too" in report


def test_tokenizers_are_trained_on_the_head(tmp_path: Path, corpus: Path, whole: PreparedData) -> None:
    """On all of it where the stream is no longer; else they know no more than it has."""
    assert prepare_training_data(streamed(corpus, 50)).tgt_tokenizer.backend.to_str() == (
        whole.tgt_tokenizer.backend.to_str()
    )
    (tmp_path / "a.tsv").write_text("one two\tuno dos\n\none\tdos\nthree\ttres\n")
    sources = [{"tsv": "a.tsv"}]
    config = toy_config(tmp_path, data={"streaming": True, "train": sources, "validation": [{"tsv": "v.tsv"}]})
    (tmp_path / "v.tsv").write_text("one\tuno\n")
    config = config.model_copy(update={"data": config.data.model_copy(update={"streaming_tokenizer_pairs": 3})})
    data = prepare_training_data(config)
    assert set(data.src_tokenizer.backend.get_vocab()) - set(SPECIAL_TOKENS) == {"one", "two"}
    assert data.train.unknown_shares() == (1 / 4, 1 / 4)


# What a user may get wrong


def test_a_file_that_is_not_there(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file .*nowhere\.en"):
        prepare_training_data(streamed(corpus, 10, train=[{"src": "nowhere.en", "tgt": "train.es"}]))


def test_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\n\n")
    with pytest.raises(UserError, match=r"no pair with two sides .* a\.tsv"):
        _stream_of(tmp_path, [{"tsv": "a.tsv"}], 10)


def test_nothing_that_fits(tmp_path: Path, whole: PreparedData) -> None:
    (tmp_path / "a.tsv").write_text(" ".join(["one"] * 30) + "\tuno\n\n" * 5)
    with pytest.raises(UserError, match=r"Of 10 pairs of a\.tsv, none can be trained on.*max_len 16"):
        make_stream(whole, tmp_path, 2, train=[{"tsv": "a.tsv"}])


def test_nothing_in_a_later_epoch(tmp_path: Path, whole: PreparedData) -> None:
    (tmp_path / "a.tsv").write_text("one\tuno\n" * 2)
    stream = make_stream(whole, tmp_path, 2, train=[{"tsv": "a.tsv"}])  # reads a second window on, not the first again
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(StreamError, match=r"There was no pair to train on in epoch 2 of a\.tsv"):
        stream.plan(64, 3, 1).has(0)


def test_a_bad_line_is_named_when_it_is_come_to(tmp_path: Path, whole: PreparedData) -> None:
    good = "".join(f"{src}\t{tgt}\n" for src, tgt in toy_pairs(20))
    (tmp_path / "a.tsv").write_bytes(good.encode() + b"\xff\tuno\n" + good.encode())
    stream = make_stream(whole, tmp_path, 10, train=[{"tsv": "a.tsv"}])
    with pytest.raises(StreamError, match=r"a\.tsv, line 21: the bytes are not UTF-8"):
        lines_of(stream, 0)


@pytest.mark.parametrize("window", [5, 20, 100])
def test_line_counts_that_differ_are_found_at_the_end(tmp_path: Path, window: int) -> None:
    """The epoch does not end as if it were whole, also where a window ends just there."""
    for language, number in (("en", 20), ("es", 21)):
        (tmp_path / f"a.{language}").write_text("one\n" * number)
    with pytest.raises(UserError, match=r"a\.en has 20 lines and .*a\.es has 21"):
        lines_of(_stream_of(tmp_path, [{"src": "a.en", "tgt": "a.es"}], window), 0)


def test_a_pair_that_is_too_long_is_an_error_if_asked_for(tmp_path: Path, whole: PreparedData) -> None:
    (tmp_path / "a.tsv").write_text("one\tuno\n" * 8 + "one " * 30 + "\tuno\n")
    write_toy_corpus(tmp_path)
    stream = make_stream(whole, tmp_path, 4, train=[{"tsv": "a.tsv"}], too_long="error")
    with pytest.raises(StreamError, match=r"a\.tsv, line 9: 31 source and 2 target tokens .* model\.max_len is 16"):
        lines_of(stream, 0)


def test_validation_words_that_are_unknown_are_refused(corpus: Path) -> None:
    with pytest.raises(UserError, match="words are not in the vocabulary"):
        prepare_training_data(streamed(corpus, 10, validation=[{"src": "valid.en", "tgt": "valid.en"}]))


@pytest.mark.parametrize("side", [0, 1])
def test_text_that_is_not_what_it_was_is_seen_where_a_run_goes_on(tmp_path: Path, side: int) -> None:
    pairs = toy_pairs(30)
    (tmp_path / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs))
    plan = _stream_of(tmp_path, [{"tsv": "a.tsv"}], 10).plan(64, 3, 0)
    number = 0
    while plan.place(number)["window"] != 1:
        number += 1
    sides = [list(texts) for texts in zip(*pairs, strict=True)]
    sides[side][15:17] = reversed(sides[side][15:17])
    (tmp_path / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in zip(*sides, strict=True)))
    changed = _stream_of(tmp_path, [{"tsv": "a.tsv"}], 10)
    changed.go_on_from(0, plan.place(number))
    with pytest.raises(StreamError, match=r"The data changed .* from number 11 on of a\.tsv"):
        changed.plan(64, 3, 0).has(number)
