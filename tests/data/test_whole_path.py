"""From files to batches: whatever text stands in whatever kind of file, every pair comes out whole, with its own."""

import gzip
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attempts import attempt
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import toy_config
from writers import (
    ANY,
    LINE,
    WRITERS,
    make_config,
    make_source,
    write_csv,
    write_hub,
    write_jsonl,
    write_text,
    write_tsv,
)

from transformer_mt.data.batches.batching import plan_batches
from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.data.preparation import PreparedData, prepare_data
from transformer_mt.data.sources import files
from transformer_mt.data.sources.kinds import source_of
from transformer_mt.data.tokenizers import normalize
from transformer_mt.errors import UserError

Pairs = list[tuple[str, str]]
KINDS: dict[str, Any] = {write.__name__.removeprefix("write_"): write for write in WRITERS}
HUB: dict[str, Any] = {"hub": write_hub}
# A folder as a person may name it; relative paths start there.
FOLDERS = [
    "plain",
    "with a space",
    "größe/日本 語",
    "emoji 😀 'quote'",
    "-dash",
    "a=b,c;d",
    "~tilde",
    "ａ\u0301",
    "{x}",
]
# Names that `datasets` takes for patterns; everything else reads them as they stand.
PATTERNS = ["[x]", "a*b", "a?b", "$HOME", "${HOME}", "a::b"]


def draw_pairs(data: st.DataObject, kind: str, most: int) -> Pairs:
    side = LINE if kind in ("text", "tsv") else ANY
    return data.draw(st.lists(st.tuples(side, side), min_size=1, max_size=most))


def prepare(root: Path, source: Any, cache: Path) -> PreparedData:
    written = source.model_dump(exclude_defaults=True)
    return prepare_data(
        toy_config(
            root,
            data={"train": [written], "validation": [written], "cache_dir": str(cache), "src_lang": "x"},
            tokenizer={"kind": "bpe", "vocab_size": 300, "min_frequency": 1},
            model={"max_len": 1000},
            training={"max_tokens": 1000},
        )
    )


def pairs_of_batches(data: PreparedData, seed: int) -> Pairs:
    """An epoch as the training sees it, back in text."""
    train = data.train
    found = []
    for rows in plan_batches(train.src_lengths, train.tgt_lengths, 1000, seed, epoch=0):
        batch = train.batch(rows)
        for src, tgt in zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True):
            found.append((data.src_tokenizer.decode(src), data.tgt_tokenizer.decode(tgt)))
    return found


def assert_whole_path(kind: str, pairs: Pairs, folder: str, cache: Path) -> None:
    """Every pair without a blank side is in the corpus, in order, letter by letter; and once in the batches."""
    kept = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / folder
        root.mkdir(parents=True)
        source = {**KINDS, **HUB}[kind](root, pairs)
        if not kept:
            with pytest.raises(
                UserError, match=r"The corpus .* is empty: (all \d+ pairs have|1 pair has) a blank side"
            ):
                prepare(root, source, cache)
            return
        data = prepare(root, source, cache)
    columns = data.train.corpus.dataset[:]
    assert list(zip(columns["src"], columns["tgt"], strict=True)) == kept
    assert (data.train.corpus.num_read, data.train.corpus.num_blank) == (len(pairs), len(pairs) - len(kept))
    assert Counter(pairs_of_batches(data, seed=len(pairs))) == Counter(
        (normalize(src), normalize(tgt)) for src, tgt in kept
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all cases, so that an entry taken for another would show."""
    return tmp_path_factory.mktemp("cache of all")


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(list(KINDS)), folder=st.sampled_from(FOLDERS + PATTERNS))
def test_pairs_come_out_of_the_batches_as_they_went_in(
    cache: Path, data: st.DataObject, kind: str, folder: str
) -> None:
    assert_whole_path(kind, draw_pairs(data, kind, 12), folder, cache)


@pytest.mark.parametrize("kind", HUB)
@settings(max_examples=2)
@given(data=st.data(), folder=st.sampled_from(FOLDERS))
def test_pairs_of_a_folder_in_the_hubs_layout(cache: Path, data: st.DataObject, kind: str, folder: str) -> None:
    assert_whole_path(kind, draw_pairs(data, kind, 12), folder, cache)


@pytest.mark.slow
@settings(max_examples=2000)
@given(data=st.data(), kind=st.sampled_from(list(KINDS)), folder=st.sampled_from(FOLDERS + PATTERNS))
def test_pairs_come_out_many_times(cache: Path, data: st.DataObject, kind: str, folder: str) -> None:
    assert_whole_path(kind, draw_pairs(data, kind, 40), folder, cache)


@pytest.mark.slow
@pytest.mark.parametrize("kind", HUB)
@settings(max_examples=60)
@given(data=st.data(), folder=st.sampled_from(FOLDERS))
def test_pairs_of_a_hub_folder_many_times(cache: Path, data: st.DataObject, kind: str, folder: str) -> None:
    assert_whole_path(kind, draw_pairs(data, kind, 40), folder, cache)


# Edits that leave the meaning of a file as it was

BLOCKS = st.sampled_from([1, 2, 5, 20, files.BLOCK_BYTES])


@contextmanager
def read_at_once(num_bytes: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", num_bytes)
        yield


CR_FREE = LINE.map(lambda text: text.replace("\r", ""))


@pytest.mark.parametrize("write", [write_text, write_tsv, write_csv, write_jsonl])
@settings(max_examples=25)
@given(
    pairs=st.lists(st.tuples(CR_FREE, CR_FREE), max_size=6),
    edits=st.sets(st.sampled_from(["mark", "crlf", "cut the last end", "gzip"])),
    num_bytes=BLOCKS,
)
def test_marks_line_ends_and_gzip_change_nothing(write: Any, pairs: Pairs, edits: set[str], num_bytes: int) -> None:
    pairs = [*pairs, ("the", "end")]  # a blank last line without its end is no line
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder), pairs)
        for name in source.model_dump(exclude_defaults=True).values():
            content = (Path(folder) / name).read_bytes().replace(b"\r\n", b"\n")
            if "crlf" in edits:
                content = content.replace(b"\n", b"\r\n")
            if "cut the last end" in edits:
                content = content.removesuffix(b"\n").removesuffix(b"\r")
            content = b"\xef\xbb\xbf" * ("mark" in edits) + content
            (Path(folder) / name).write_bytes(gzip.compress(content) if "gzip" in edits else content)
        with read_at_once(num_bytes):
            assert [(pair.src, pair.tgt) for pair in source_of(source, make_config(Path(folder))).pairs()] == pairs


# Files that nobody wrote on purpose

PIECES = [
    b"a",
    b"b\tc",
    b"\t",
    b"\n",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\0",
    "é\u2028\x85\x0c".encode(),
]
PIECES += [
    b'{"src": "x", "tgt": "y"}',
    b'{"src": null, "tgt": "\\ud83d\\ude00"}',
    b'"',
    b"\\",
    b",",
    b'{"tgt": 1}',
    b" ",
]


def lines_of(content: bytes) -> list[str]:
    """By `bytes.split`, which knows of no other line end. Raises ValueError for bytes that are not UTF-8."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    ended = [line.removesuffix(b"\r") for line in lines[:-1]]
    return [line.decode() for line in [*ended, *[lines[-1]] * (lines[-1] != b"")]]


def rightly_read(kind: str, content: bytes) -> Pairs:
    """What a file holds by the rules of its kind. Raises ValueError, KeyError, TypeError where it breaks them."""
    lines = lines_of(content)
    if kind == "text":  # both sides are this one file
        return [(line, line) for line in lines]
    if kind == "tsv":
        rows = [line.split("\t") if line.strip() or line.count("\t") else ["", ""] for line in lines]
        return [(row[0], dict(enumerate(row))[1]) for row in rows]
    rows = [json.loads(line) if line.strip() else {"src": "", "tgt": ""} for line in lines]
    pairs = [tuple("" if row[side] is None else row[side] for side in ("src", "tgt")) for row in rows]
    return [(src + "", tgt + "") for src, tgt in pairs]


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["text", "tsv", "jsonl"]),
    content=st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=40),
    num_bytes=BLOCKS,
)
def test_any_bytes_are_read_by_the_rules_or_refused(kind: str, content: bytes, num_bytes: int) -> None:
    with read_at_once(num_bytes), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a").write_bytes(content)
        try:
            expected = rightly_read(kind, content)
        except (ValueError, KeyError, TypeError):
            expected = None
        data = make_config(Path(folder))
        found, refusal = attempt(lambda: [(p.src, p.tgt) for p in source_of(make_source(kind, "a"), data).pairs()])
        assert found == expected
        assert refusal is None or str(Path(folder) / "a") in refusal


@settings(max_examples=60)
@given(data=st.data(), num=st.integers(1, 12), num_bytes=BLOCKS)
def test_lines_lost_or_won_on_one_side_are_never_aligned(data: st.DataObject, num: int, num_bytes: int) -> None:
    """Whatever the lines hold, be it no text, and wherever some are missing: both counts, never pairs that are none."""
    lines = data.draw(st.lists(st.tuples(LINE, LINE), min_size=num, max_size=num))
    place = data.draw(st.integers(0, num - 1))
    with read_at_once(num_bytes), tempfile.TemporaryDirectory() as folder:
        source = write_text(Path(folder), lines)
        path = Path(folder) / data.draw(st.sampled_from(["a.en", "a.es"]))
        rows = path.read_bytes().split(b"\n")
        more = data.draw(st.integers(1, 30)) if data.draw(st.booleans()) else -data.draw(st.integers(1, num - place))
        at_the_end = more > 0 and data.draw(st.booleans())
        if at_the_end:
            rows[num:num] = [b"no text \xff"] * more
        elif more > 0:
            rows[place:place] = [b"one more"] * more
        else:
            del rows[place : place - more]
        path.write_bytes(b"\n".join(rows))
        counts = [num, num + more][:: 1 if path.name == "a.es" else -1]
        expected = rf"a\.en has {counts[0]} lines? and .*a\.es has {counts[1]}\."
        with pytest.raises(UserError, match=expected):
            list(source_of(source, make_config(Path(folder))).pairs())


@settings(max_examples=60)
@given(sides=st.lists(st.tuples(CR_FREE, CR_FREE), min_size=1, max_size=12), bad=st.data(), num_bytes=BLOCKS)
def test_what_comes_before_a_byte_that_is_no_text_is_read(sides: Pairs, bad: st.DataObject, num_bytes: int) -> None:
    """And the place of the byte is named, however many lines are read at once, of either side."""
    place, side = bad.draw(st.integers(0, len(sides) - 1)), bad.draw(st.sampled_from(["a.en", "a.es"]))
    with read_at_once(num_bytes), tempfile.TemporaryDirectory() as folder:
        source = write_text(Path(folder), sides)
        path = Path(folder) / side
        rows = path.read_bytes().split(b"\n")
        rows[place] += b"\xff"
        path.write_bytes(bad.draw(st.sampled_from([b"\n", b"\r\n"])).join(rows))
        found = []
        with pytest.raises(UserError, match=rf"{side}, line {place + 1}: the bytes are not UTF-8"):
            found.extend(source_of(source, make_config(Path(folder))).pairs())
    assert [(pair.src, pair.tgt, pair.line) for pair in found] == [
        (*pair, number) for number, pair in enumerate(sides[:place], start=1)
    ]


@settings(max_examples=60)
@given(
    sides=st.lists(st.tuples(LINE, LINE), max_size=12),
    num_bytes=BLOCKS,
    write=st.sampled_from([write_text, write_tsv, write_jsonl]),
)
def test_blocks_hold_the_pairs_one_after_the_other(sides: Pairs, num_bytes: int, write: Any) -> None:
    with read_at_once(num_bytes), tempfile.TemporaryDirectory() as folder:
        source, data = write(Path(folder), sides), make_config(Path(folder))
        blocks = list(source_of(source, data).blocks())
        assert all(len(block.src) == len(block.tgt) == len(block.lines) > 0 for block in blocks)
        found = [pair for block in blocks for pair in zip(*block, strict=True)]
        assert found == [(pair.src, pair.tgt, pair.line) for pair in source_of(source, data).pairs()]


@pytest.mark.parametrize("num_bytes", [1, files.BLOCK_BYTES])
def test_a_mark_of_byte_order_is_text_but_at_the_beginning(num_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(2 * (3 * b"\xef\xbb\xbf" + b"a\n"))
    with read_at_once(num_bytes):
        found = [pair.src for pair in source_of(make_source("text", "a"), make_config(tmp_path)).pairs()]
    assert found == ["\ufeff\ufeffa", "\ufeff\ufeff\ufeffa"]


def test_a_line_of_a_mebibyte(tmp_path: Path) -> None:
    long = "word " * ((LONGEST_LINE - 60) // 5)  # and the keys of JSON
    for write in (write_text, write_jsonl, write_csv):
        source = write(tmp_path, [("a", "b"), (long, "c"), ("d", long)])
        pairs = [(pair.src, pair.tgt) for pair in source_of(source, make_config(tmp_path)).pairs()]
        assert pairs == [("a", "b"), (long, "c"), ("d", long)]


def test_a_message_about_columns_stays_short(tmp_path: Path) -> None:
    names = [*(f"column{n}" for n in range(5000)), "x" * 100_000]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("v" * len(names)) + "\n")
    with pytest.raises(UserError, match=r"the columns that exist are column0, .*, 4,971 more\. Name the two") as caught:
        list(source_of(make_source("csv", "a.csv"), make_config(tmp_path)).pairs())
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("folder", PATTERNS)
def test_a_hub_folder_that_would_be_taken_for_a_pattern_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    source = write_hub(tmp_path / folder, [("a", "b")])
    with pytest.raises(UserError, match=r"takes '.+' in it for a pattern\. Rename the folder"):
        prepare(tmp_path / folder, source, tmp_path / "cache")


def test_a_pipe_in_a_hub_folder_is_not_waited_for(tmp_path: Path) -> None:
    source = write_hub(tmp_path, [("a", "b")])
    (tmp_path / "hub" / "train.parquet").unlink()
    os.mkfifo(tmp_path / "hub" / "train.parquet")
    with pytest.raises(UserError):
        prepare(tmp_path, source, tmp_path / "cache")
