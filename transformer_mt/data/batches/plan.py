"""The micro-batches of an epoch in their order, whether all of them are known at its beginning or not."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.batches.batching import Batch, Rows

EPOCH_BITS = 40  # of a row that holds its epoch: the epoch above them, its place in the epoch below


class LengthsByPart:
    """The lengths of one side, by row, where `of_part` knows those of the rows from part * size on."""

    def __init__(self, of_part: Callable[[int], NDArray[np.int32]], size: int) -> None:
        self._of_part, self._size = of_part, size

    def __getitem__(self, rows: Any) -> Any:
        """An int32 for a row, an array for an array of rows."""
        wanted = np.atleast_1d(rows)
        parts = wanted // self._size
        found = np.empty(len(wanted), np.int32)
        for part in np.unique(parts).tolist():
            here = parts == part
            found[here] = self._of_part(part)[wanted[here] % self._size]
        return found if np.ndim(rows) else found[0]


class Plan(Protocol):
    """What training asks of the order of an epoch. Micro-batches go by their number in it, from 0."""

    @property
    def num_micro_batches(self) -> int | None:
        """How many the whole epoch has; None where it is not known before its end."""
        ...

    def take(self, first: int, number: int) -> list[Rows]:
        """The micro-batches from `first` on, `number` of them or as many as the epoch has left. Earlier ones are not
        asked for again.
        """
        ...

    def get(self, number: int) -> Rows | None:
        """The micro-batch of this number, or None after the last; nothing is forgotten for it."""
        ...

    def has(self, number: int) -> bool:
        """Whether the epoch has a micro-batch of this number."""
        ...

    def known(self) -> list[Rows]:
        """The micro-batches that are planned already, one at least."""
        ...

    def place(self, number: int) -> dict[str, int | str] | None:
        """What resuming at a micro-batch needs beside its number and that of the epoch; None if it needs no more."""
        ...

    def summary(self) -> str | None:
        """What became known about an epoch by its end; None where all was known before."""
        ...


class TrainingSplit(Protocol):
    """What training asks of its pairs. Rows are those of its plans."""

    @property
    def src_lengths(self) -> Any:
        """Lengths of x + EOS, by row or array of rows."""
        ...

    @property
    def tgt_lengths(self) -> Any:
        """How many target tokens there are, by row or array of rows: those of y + EOS, or those told in place."""
        ...

    def batch(self, indices: Rows) -> Batch:
        """The pairs of these rows, padded."""
        ...

    def where(self, index: int) -> str:
        """Where the pair of this row stands: `file.en / file.de, line 17`."""
        ...

    def plan(self, max_tokens: int, seed: int, epoch: int) -> Plan:
        """The micro-batches of an epoch."""
        ...


class WholePlan:
    """An epoch that is known as a whole."""

    def __init__(self, batches: list[Rows]) -> None:
        self._batches = batches

    @property
    def num_micro_batches(self) -> int | None:
        """How many there are."""
        return len(self._batches)

    def take(self, first: int, number: int) -> list[Rows]:
        """See `Plan`."""
        return self._batches[first : first + number]

    def get(self, number: int) -> Rows | None:
        """See `Plan`."""
        return self._batches[number] if number < len(self._batches) else None

    def has(self, number: int) -> bool:
        """See `Plan`."""
        return number < len(self._batches)

    def known(self) -> list[Rows]:
        """All of them."""
        return self._batches

    def place(self, number: int) -> None:
        """See `Plan`."""

    def summary(self) -> str | None:
        """See `Plan`."""
        return None
