"""Token-budget batches of pairs of like length, as a pure function of (seed, epoch).

A plan is a list of row-index arrays; `make_batch` turns one of them into padded tensors. Lengths here are those of
the tensors: a source is x + EOS, a target is BOS + y going in and y + EOS coming out, so each is one longer than its
tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID

Rows = NDArray[np.int64]
# (num_rows, longest + 1) ids, of which a row's own are the first, and (num_rows,) how many those are. Patches have one
# dimension more, of their pixels: 8 bits each, of which a special id fills all.
Ids = tuple[NDArray[np.integer], NDArray[np.int64]]
PLANNED_AT_ONCE = 2**20  # rows: sorting so many stays within the caches, and sorting more saves no more padding


@dataclass(frozen=True)
class Batch:
    """Padded ids of some pairs. `num_tokens` counts the target tokens without padding, `num_padding` the cells of
    padding in `src` and `tgt_out`.

    Both, and the places, could be found in the tensors. They are counted when the batch is made, so that nobody has to
    wait for a device.
    """

    src: Tensor  # (batch, src_len), x + EOS; of pictures (batch, src_len, pixels)
    tgt_in: Tensor  # (batch, tgt_len), BOS + y
    tgt_out: Tensor  # (batch, tgt_len), y + EOS
    real: Tensor  # (num_tokens,), the places of the target tokens in tgt_out.flatten()
    src_real: Tensor  # (num_src_tokens,), those of the source's in src.flatten(), or of its patches
    num_tokens: int
    num_padding: int

    @classmethod
    def of(cls, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> "Batch":
        """A batch from the ids alone, which lie in the memory of the CPU."""
        real = (tgt_out.flatten() != PAD_ID).nonzero().flatten()
        of_src = src if src.dim() == 2 else src[:, :, 0]
        src_real = (of_src.flatten() != PAD_ID).nonzero().flatten()
        num_padding = of_src.numel() - len(src_real) + tgt_out.numel() - len(real)
        return cls(src, tgt_in, tgt_out, real, src_real, len(real), num_padding)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device. A GPU copies it from pinned memory, and nobody waits for the copy."""
        asynchronous = device.type == "cuda" and self.src.device.type == "cpu"
        tensors = [self.src, self.tgt_in, self.tgt_out, self.real, self.src_real]
        if asynchronous:
            with torch.cuda.device(device):  # a thread begins on the first GPU, which may be another process's
                tensors = [tensor.pin_memory() for tensor in tensors]
        src, tgt_in, tgt_out, real, src_real = (tensor.to(device, non_blocking=asynchronous) for tensor in tensors)
        return Batch(src, tgt_in, tgt_out, real, src_real, self.num_tokens, self.num_padding)

    def widened(self, src_columns: int, tgt_columns: int) -> "Batch":
        """The same pairs with so many more columns of padding on each side."""
        if not src_columns and not tgt_columns:
            return self
        src, tgt_in, tgt_out = (
            F.pad(ids, (*(0, 0) * (ids.dim() - 2), 0, columns), value=PAD_ID)
            for ids, columns in ((self.src, src_columns), (self.tgt_in, tgt_columns), (self.tgt_out, tgt_columns))
        )
        real = self.real + self.real // self.tgt_out.size(1) * tgt_columns
        src_real = self.src_real + self.src_real // self.src.size(1) * src_columns
        num_padding = self.num_padding + len(self.src) * (src_columns + tgt_columns)
        return Batch(src, tgt_in, tgt_out, real, src_real, self.num_tokens, num_padding)

    @property
    def num_cells(self) -> int:
        """Positions of source and target together, padding included."""
        return len(self.src) * self.src.size(1) + self.tgt_out.numel()


def pad_rows(rows: Sequence[Sequence[int] | NDArray[np.integer]]) -> Tensor:
    """Rows of ids, right-padded -> (num_rows, longest) int64."""
    return torch.from_numpy(_in_rows(rows, 0)[0])


def pad_sources(rows: Sequence[Sequence[int] | NDArray[np.integer]]) -> Tensor:
    """Rows of ids, or of patches (length, pixels), without EOS -> the sources of a batch, see `Batch`."""
    return torch.from_numpy(with_eos(*_in_rows(rows, 1))[0])


def make_batch(
    src: Sequence[Sequence[int] | NDArray[np.integer]], tgt: Sequence[Sequence[int] | NDArray[np.integer]]
) -> Batch:
    """Ids without special tokens, a row a sentence, to a batch."""
    return batch_of_ids(_in_rows(src, 1), _in_rows(tgt, 1))


def _in_rows(rows: Sequence[Sequence[int] | NDArray[np.integer]], more: int) -> Ids:
    """The rows with PAD after their last ids, `more` columns wider than the longest row."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    first = np.asarray(rows[0])
    kind = np.uint8 if first.ndim == 2 else np.int64
    padded = np.full((len(rows), int(lengths.max()) + more, *first.shape[1:]), PAD_ID, kind)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded, lengths


def batch_of_ids(src: Ids, tgt: Ids) -> Batch:
    """`make_batch` from each side's ids in rows, with the length of each row; nothing behind a row's end is read."""
    (sources, is_src), (targets, is_tgt) = (with_eos(*side) for side in (src, tgt))
    tgt_in = np.empty_like(targets)
    tgt_in[:, 0] = BOS_ID
    tgt_in[:, 1:] = targets[:, :-1]
    # This is y + EOS moved by one place. The EOS itself becomes padding.
    rows = np.flatnonzero(tgt[1] + 1 < targets.shape[1])
    tgt_in[rows, tgt[1][rows] + 1] = PAD_ID
    real, src_real = np.flatnonzero(is_tgt), np.flatnonzero(is_src)
    num_padding = is_src.size - len(src_real) + is_tgt.size - len(real)
    src_tensor, *tgt_tensors = (torch.from_numpy(array) for array in (sources, tgt_in, targets))
    places = torch.from_numpy(real), torch.from_numpy(src_real)
    return Batch(src_tensor, tgt_tensors[0], tgt_tensors[1], places[0], places[1], len(real), num_padding)


def with_eos(ids: NDArray[np.integer], lengths: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Padded after EOS, and which cells are no padding."""
    padded = ids.astype(np.int64 if ids.ndim == 2 else np.uint8)
    padded[np.arange(len(lengths)), lengths] = EOS_ID
    is_real = np.arange(padded.shape[1]) <= lengths[:, None]
    np.copyto(padded, PAD_ID, where=~is_real.reshape(is_real.shape + (1,) * (ids.ndim - 2)))
    return padded, is_real


def plan_batches(
    src_lengths: NDArray[np.int32],
    tgt_lengths: NDArray[np.int32],
    max_tokens: int,
    seed: int,
    epoch: int,
    window: int = 0,
) -> list[Rows]:
    """Row indices of every batch of an epoch, in training order: each row once, sentences x longest side <= max_tokens.

    Rows are sorted by their longer side. Rows of one such length are sorted by how much longer the source is, upwards
    and downwards in turn, so that neighbours are alike on both sides. Ties, a little noise and the order of the batches
    come from (seed, epoch), for a window of a stream also from its number. More rows than `PLANNED_AT_ONCE` are dealt
    out by chance to several parts, and each part is sorted by itself. No side may exceed max_tokens.
    """
    generator = np.random.default_rng([seed, epoch, window] if window else [seed, epoch])
    batches: list[Rows] = []
    for rows in _dealt_out(len(src_lengths), generator):
        src, tgt = (lengths if rows is None else lengths[rows] for lengths in (src_lengths, tgt_lengths))
        order, side = by_length(src, tgt, generator)
        batches += fill(order if rows is None else rows[order], side[order].astype(np.int64), max_tokens)
    return [batches[i] for i in generator.permutation(len(batches))]


def by_length(
    src: NDArray[np.int32], tgt: NDArray[np.int32], generator: np.random.Generator
) -> tuple[Rows, NDArray[np.int32]]:
    """An order of pairs of these lengths in which neighbours are alike (see `plan_batches`), and their longer sides."""
    difference = generator.uniform(-1.0, 1.0, len(src))  # takes as many bytes as the rest of this function
    difference += src - tgt
    side = np.maximum(src, tgt)
    np.negative(difference, out=difference, where=side % 2 == 1)
    return _sorted_by(side, difference), side


def _dealt_out(num_rows: int, generator: np.random.Generator) -> Iterator[Rows | None]:
    """Parts of the rows, each row in one of them, ascending; None stands for all rows."""
    num_parts = -(-num_rows // PLANNED_AT_ONCE)
    if num_parts <= 1:
        yield None
        return
    part = generator.integers(num_parts, size=num_rows, dtype=np.uint16)
    order = np.argsort(part, kind="stable")  # numpy counts where a number has 16 bits
    yield from np.split(order, np.cumsum(np.bincount(part, minlength=num_parts))[:-1])


def _sorted_by(side: NDArray[np.int32], then: NDArray[np.float64]) -> Rows:
    """`np.lexsort((then, side))` in less time and memory: there are few lengths, so the rows are sorted by counting
    them, and then the rows of each length among themselves.
    """
    if len(side) == 0:
        return np.empty(0, np.int64)
    # numpy counts where a number has 16 bits
    order = np.argsort(side.astype(np.uint16) if side.max() < 2**16 else side, kind="stable")
    ends = np.cumsum(np.bincount(side))
    for start, end in pairwise(ends):
        if end - start > 1:
            rows = order[start:end]
            order[start:end] = rows[_stable_argsort(then[rows])]
    return order


def _stable_argsort(numbers: NDArray[np.float64]) -> Rows:
    """A stable sort. Numbers nearly always differ, and then the fastest sort will do, which takes half the time."""
    order = np.argsort(numbers)
    ordered = numbers[order]
    return order if np.all(ordered[1:] != ordered[:-1]) else np.argsort(numbers, kind="stable")


def plan_in_order(src_lengths: NDArray[np.int32], tgt_lengths: NDArray[np.int32], max_tokens: int) -> list[Rows]:
    """Batches as `plan_batches` makes them, but without chance and the short ones first: for validation."""
    side = np.maximum(src_lengths, tgt_lengths).astype(np.int64)
    order = np.lexsort((tgt_lengths, side))
    return fill(order, side[order], max_tokens)


def fill(order: Rows, side: Rows, max_tokens: int, is_sorted: bool = True) -> list[Rows]:
    """Cut rows, which are sorted by `side` unless told otherwise, into the longest stretches within the budget."""
    assert side.max(initial=0) <= max_tokens, "a pair is longer than the budget of a batch"
    batches = []
    start = 0
    while start < len(order):
        # The cost grows with the end: find the last end that fits. Where rows are sorted, the last is the longest.
        most = side[start : start + max_tokens // int(side[start])]
        if not is_sorted:
            most = np.maximum.accumulate(most)
        cost = most * np.arange(1, len(most) + 1)
        end = start + int(np.searchsorted(cost, max_tokens, side="right"))
        batches.append(order[start:end])
        start = end
    return batches
