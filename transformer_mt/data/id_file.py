"""Ids of many sentences one after the other, in memory or mapped from a file."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

IDS, LENGTHS = "ids", "lengths"  # how the names of a column's two files end
ON_DISK = np.dtype("<i4")  # of lengths
COUNTED_AT_ONCE = 2**20  # ids: numpy needs up to 15 bytes for each


def id_type(vocab_size: int, pixels: int) -> np.dtype[np.integer]:
    """The type of such a vocabulary's ids in a file. The fewer bytes an id has, the more of them the caches hold."""
    return np.dtype("u1") if pixels else np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


class IdColumn:
    """One side of some pairs: row i is the ids of sentence i, without special tokens. Where the source is a picture,
    what is called an id is a patch, and `ids` (num_patches, pixels).
    """

    def __init__(self, ids: NDArray[np.integer], lengths: NDArray[np.int32]) -> None:
        """The ids of all rows, and the number of ids of each row. ValueError where the two do not agree."""
        self.ids = ids
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        if starts[-1] != len(ids):
            raise ValueError(f"there are {len(ids):,} ids where the rows have {starts[-1]:,}")
        self._starts = starts if len(ids) >= 2**32 else starts.astype(np.uint32)

    @classmethod
    def mapped(cls, folder: Path, name: str, vocab_size: int, pixels: int = 0) -> "IdColumn":
        """What an `IdWriter` wrote. ValueError or OSError where it is not whole."""
        kind = id_type(vocab_size, pixels)
        lengths = np.fromfile(folder / f"{name}.{LENGTHS}", ON_DISK)
        path = folder / f"{name}.{IDS}"
        ids = np.memmap(path, kind, "r") if path.stat().st_size else np.empty(0, kind)  # an empty file cannot be mapped
        return cls(np.asarray(ids).reshape(-1, pixels) if pixels else np.asarray(ids), lengths)

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of ids of each row, computed on each call: a column of ten million rows does not keep them."""
        return np.diff(self._starts).astype(np.int32)

    def __getitem__(self, row: int) -> NDArray[np.integer]:
        """IndexError past the last row, so that a column can be iterated over."""
        return self.ids[int(self._starts[row]) : int(self._starts[row + 1])]

    def gather(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """(num_rows, longest + 1) ids, each row's own first and then whatever follows them in the column, and
        (num_rows,) how many are its own.
        """
        # All rows in one go: they lie far apart, and so the processor waits for many of them at once.
        starts, ends = (self._starts[edge].astype(np.int64) for edge in (rows, rows + 1))
        lengths = ends - starts
        width = int(lengths.max(initial=0)) + 1
        if len(self.ids) == 0:
            return np.zeros((len(rows), width, *self.ids.shape[1:]), np.int64), lengths
        places = starts[:, None] + np.arange(width)
        return self.ids.take(places, axis=0, mode="clip"), lengths

    def take(self, rows: NDArray[np.int64]) -> "IdColumn":
        """A column in memory of these rows, in this order."""
        # Without the rectangle of `gather`: of many rows it would be as wide as the one that is longest.
        starts, ends = (self._starts[edge].astype(np.int64) for edge in (rows, rows + 1))
        lengths = ends - starts
        places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        places += np.arange(len(places))
        return IdColumn(self.ids.take(places, axis=0, mode="clip"), lengths.astype(np.int32))  # clip: it checks none

    def with_rows(self, places: NDArray[np.int64], others: "IdColumn") -> "IdColumn":
        """A column in memory that has at these places the rows of another column, in their order."""
        if len(places) == 0:
            return self
        ids = np.concatenate([self.ids.astype(np.int32), others.ids.astype(np.int32)])
        order = np.arange(len(self))
        order[places] = len(self) + np.arange(len(others))
        return IdColumn(ids, np.concatenate([self.lengths, others.lengths])).take(order)

    def count(self, ids: list[int]) -> int:
        """How many of all the ids are among these; of patches, how many have a pixel of these levels."""
        pieces = range(0, len(self.ids), COUNTED_AT_ONCE)
        found = (np.isin(self.ids[start : start + COUNTED_AT_ONCE], ids) for start in pieces)
        return sum(int((one.any(axis=1) if one.ndim == 2 else one).sum()) for one in found)


class IdWriter:
    """Writes a column to two files of a folder, some rows at a time. `IdColumn.mapped` reads them."""

    def __init__(self, folder: Path, name: str, vocab_size: int, pixels: int = 0) -> None:
        self._vocab_size = vocab_size
        self._kinds = id_type(vocab_size, pixels), ON_DISK
        self._paths = [folder / f"{name}.{part}" for part in (IDS, LENGTHS)]
        self._open = ExitStack()

    def __enter__(self) -> "IdWriter":
        with ExitStack() as stack:
            self._files = [stack.enter_context(path.open("wb")) for path in self._paths]
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()  # both, also where the disk is full

    def write(self, ids: NDArray[np.int32], lengths: NDArray[np.integer]) -> None:
        """Add some rows."""
        assert ids.max(initial=0) < self._vocab_size, "an id that the vocabulary has not"
        for file, array, kind in zip(self._files, (ids, lengths), self._kinds, strict=True):
            file.write(array.astype(kind).data)
