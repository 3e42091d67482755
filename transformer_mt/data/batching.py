"""Token-budget batches of pairs of like length, as a pure function of (seed, epoch).

A plan is a list of row-index arrays; `make_batch` turns one of them into padded tensors. Lengths here are those of
the tensors: a source is x + EOS, a target is BOS + y going in and y + EOS coming out, so each is one longer than its
tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Padded ids of some pairs. `num_tokens` counts the target tokens that are not padding."""

    src: Tensor  # (batch, src_len), x + EOS
    tgt_in: Tensor  # (batch, tgt_len), BOS + y
    tgt_out: Tensor  # (batch, tgt_len), y + EOS
    num_tokens: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(self.src.to(device), self.tgt_in.to(device), self.tgt_out.to(device), self.num_tokens)

    def padding_share(self) -> float:
        """Padding among all positions, source and target together."""
        cells = self.src.numel() + self.tgt_out.numel()
        return int((self.src == PAD_ID).sum() + (self.tgt_out == PAD_ID).sum()) / cells


def pad_rows(rows: Sequence[Sequence[int] | NDArray[np.int32]]) -> Tensor:
    """Rows of ids, right-padded -> (num_rows, longest) int64."""
    padded = np.full((len(rows), max(len(row) for row in rows)), PAD_ID, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def make_batch(src: Sequence[NDArray[np.int32]], tgt: Sequence[NDArray[np.int32]]) -> Batch:
    """Ids without special tokens, a row a sentence, to a batch."""
    tgt_out = pad_rows([np.append(row, EOS_ID) for row in tgt])
    tgt_in = torch.full_like(tgt_out, PAD_ID)
    tgt_in[:, 0] = BOS_ID
    tgt_in[:, 1:] = tgt_out[:, :-1]
    tgt_in[tgt_in == EOS_ID] = PAD_ID  # a shorter row's EOS is an output only
    return Batch(pad_rows([np.append(row, EOS_ID) for row in src]), tgt_in, tgt_out, sum(len(row) + 1 for row in tgt))


def plan_batches(
    src_lengths: NDArray[np.int32], tgt_lengths: NDArray[np.int32], max_tokens: int, seed: int, epoch: int
) -> list[Rows]:
    """Row indices of every batch of an epoch, in training order: each row once, sentences x longest side <= max_tokens.

    Rows are sorted by their longer side and, within it, by how much longer the source is, up and down in turn, so
    that neighbours are alike on both sides. Ties, a little noise and the order of the batches come from
    (seed, epoch). No side may exceed max_tokens.
    """
    generator = np.random.default_rng([seed, epoch])
    side = np.maximum(src_lengths, tgt_lengths).astype(np.int64)
    difference = src_lengths.astype(np.float64) - tgt_lengths + generator.uniform(-1.0, 1.0, len(side))
    order = np.lexsort((np.where(side % 2 == 0, difference, -difference), side))
    batches = _fill(order, side[order], max_tokens)
    return [batches[i] for i in generator.permutation(len(batches))]


def plan_in_order(src_lengths: NDArray[np.int32], tgt_lengths: NDArray[np.int32], max_tokens: int) -> list[Rows]:
    """The same batches without chance and without shuffling, short ones first: for validation."""
    side = np.maximum(src_lengths, tgt_lengths).astype(np.int64)
    order = np.lexsort((tgt_lengths, side))
    return _fill(order, side[order], max_tokens)


def _fill(order: Rows, side: Rows, max_tokens: int) -> list[Rows]:
    """Cut rows sorted by `side` into the longest stretches within the budget."""
    assert len(side) == 0 or side[-1] <= max_tokens, "a pair is longer than the budget of a batch"
    batches = []
    start = 0
    while start < len(order):
        # The longest row of a stretch is its last, so its cost grows with its end: find the last end that fits.
        most = side[start : start + max_tokens // int(side[start])]
        cost = most * np.arange(1, len(most) + 1)
        end = start + int(np.searchsorted(cost, max_tokens, side="right"))
        batches.append(order[start:end])
        start = end
    return batches
