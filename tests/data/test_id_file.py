"""Columns of ids against lists of lists."""

import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from transformer_mt.data import id_file as columns
from transformer_mt.data.id_file import IdColumn, IdWriter

SMALL = 2**16  # the last vocabulary whose ids have two bytes


def rows_of(vocab_size: int) -> st.SearchStrategy[list[list[int]]]:
    ids = st.integers(0, vocab_size - 1) | st.just(vocab_size - 1)
    return st.lists(st.lists(ids, max_size=5), max_size=12)


def flat(rows: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return np.array([token for row in rows for token in row], np.int32), np.array(list(map(len, rows)), np.int32)


@pytest.mark.parametrize("vocab_size", [SMALL, SMALL + 1, 2**31 - 1])
@given(data=st.data())
def test_what_was_written_in_pieces_is_read_by_row(
    vocab_size: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chunks = data.draw(st.lists(rows_of(vocab_size), max_size=4))
    folder = tmp_path_factory.getbasetemp()
    with IdWriter(folder, "src", vocab_size) as writer:
        for chunk in chunks:
            writer.write(*flat(chunk))
    rows = [row for chunk in chunks for row in chunk]
    for column in (IdColumn.mapped(folder, "src", vocab_size), IdColumn(*flat(rows))):
        assert len(column) == len(rows)
        assert [row.tolist() for row in column] == rows
        assert column.lengths.tolist() == list(map(len, rows))
        wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20) if rows else st.just([]))
        ids, lengths = column.gather(np.array(wanted, np.int64))
        assert lengths.tolist() == [len(rows[row]) for row in wanted]
        assert ids.shape == (len(wanted), max([0, *lengths]) + 1)
        assert [found[:length].tolist() for found, length in zip(ids, lengths, strict=True)] == [
            rows[row] for row in wanted
        ]
        assert [row.tolist() for row in column.take(np.array(wanted, np.int64))] == [rows[row] for row in wanted]
        some = sorted({token for row in rows[:2] for token in row})
        assert column.count(some) == sum(token in some for row in rows for token in row)


def test_one_long_line_does_not_set_the_memory_that_all_rows_take() -> None:
    """A rectangle of all rows, as wide as the longest, would have eight million places for these 6,095 ids."""
    lengths = np.ones(4096, np.int32)
    lengths[7] = 2000
    column = IdColumn(np.arange(lengths.sum(), dtype=np.int32), lengths)
    tracemalloc.start()
    try:
        taken = column.take(np.arange(4096))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(taken.ids, column.ids)
    assert peak < 100 * len(column.ids)


def test_rows_of_patches_are_taken_whole_and_none_of_no_rows() -> None:
    patches = np.arange(12, dtype=np.uint8).reshape(6, 2)
    taken = IdColumn(patches, np.array([2, 0, 3, 1], np.int32)).take(np.array([3, 1, 0]))
    assert taken.ids.tolist() == [[10, 11], [0, 1], [2, 3]]
    assert taken.lengths.tolist() == [1, 0, 2]
    empty = IdColumn(patches[:0], np.zeros(2, np.int32)).take(np.array([1, 0, 1]))
    assert (empty.ids.shape, empty.lengths.tolist()) == ((0, 2), [0, 0, 0])


def test_ids_are_all_counted_however_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "COUNTED_AT_ONCE", 3)
    assert [IdColumn(*flat([[7] * number])).count([7]) for number in range(9)] == list(range(9))


@pytest.mark.parametrize(("vocab_size", "num_bytes"), [(SMALL, 2), (SMALL + 1, 4)])
def test_ids_take_two_bytes_where_these_are_enough(vocab_size: int, num_bytes: int, tmp_path: Path) -> None:
    with IdWriter(tmp_path, "src", vocab_size) as writer:
        writer.write(*flat([[4, 5], [SMALL - 1]]))
    assert (tmp_path / "src.ids").stat().st_size == 3 * num_bytes
    with pytest.raises(ValueError, match=r"ids where the rows have 3|multiple"):
        IdColumn.mapped(tmp_path, "src", SMALL if num_bytes == 4 else SMALL + 1)


class Places:
    """As many ids as one likes, without the memory for them: the ids at some places are these places."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, places: object) -> object:
        return places

    def take(self, places: NDArray[np.int64], axis: int, mode: str) -> NDArray[np.int64]:
        assert mode == "clip"
        return np.minimum(places, self.number - 1)


@pytest.mark.parametrize("many", [2**10, 2**31 - 1])
def test_more_ids_than_32_bits_count_are_found(many: int) -> None:
    column = IdColumn(cast(Any, Places(3 * many + 5)), np.array([many, many, many, 2, 3], np.int32))
    assert column[4] == slice(3 * many + 2, 3 * many + 5)
    ids, own = column.gather(np.array([4, 3]))
    assert own.tolist() == [3, 2]
    assert [ids[0, :3].tolist(), ids[1, :2].tolist()] == [[3 * many + i for i in part] for part in ((2, 3, 4), (0, 1))]
    assert column.lengths.tolist() == [many, many, many, 2, 3]


@pytest.mark.parametrize("lengths", [[1, 1], [2, 2], []])
def test_ids_that_are_not_as_many_as_the_rows_have_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="3 ids"):
        IdColumn(np.array([4, 5, 6], np.int32), np.array(lengths, np.int32))


def test_a_file_that_ends_within_a_number_is_refused(tmp_path: Path) -> None:
    with IdWriter(tmp_path, "tgt", SMALL) as writer:
        writer.write(*flat([[4, 5], [6]]))
    path = tmp_path / "tgt.ids"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="multiple"):
        IdColumn.mapped(tmp_path, "tgt", SMALL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_leaves_no_file_open(tmp_path: Path) -> None:
    for part in ("ids", "lengths"):
        (tmp_path / f"src.{part}").symlink_to("/dev/full")
    writer = IdWriter(tmp_path, "src", SMALL)
    with pytest.raises(OSError, match="No space left"), writer:
        writer.write(*flat([[4, 5], [6]]))
    assert [file.closed for file in writer._files] == [True, True]
