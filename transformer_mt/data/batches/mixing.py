"""The batches of an epoch where sources are mixed by weight, as a pure function of (seed, epoch).

An epoch has as many pairs as the split. Each source has its share of them, to the nearest pair, and so a part of an
endless row of its own pairs: permutation after permutation, each drawn from (seed, source, number of the permutation).
Epoch e takes up where e - 1 ended. So within a pass over its source each pair comes once, however small the share.

A batch should hold the shares, and pairs of like length. So each source is sorted by length by itself, and the sorted
sources are dealt together evenly: the shortest tenth of one beside the shortest tenth of the others. In any stretch of
that order a source has its share, give or take a pair; and no other order with these shares pads less, as far as the
longer side goes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.batches.batching import PLANNED_AT_ONCE, Rows, by_length, fill

MIXING = 0x317  # keeps these generators apart from those of other plans
DRAWN_AT_ONCE = 2**16  # pairs: passes over a small source are drawn by one generator until there are so many
# Two copies of a pair are of one length, so they would meet in a batch. An epoch that goes over a source several times
# is planned in as many parts, unless these became too small to have batches of like length.
SMALLEST_PART = 2**14


def pairs_an_epoch(weights: Sequence[float], num_pairs: int) -> list[int]:
    """`num_pairs` shared out by weight: each share rounded down, and the pairs that are left to the largest remainders.

    The weights are not negative and not all zero. A source of weight 0 gets none.
    """
    relative = np.array(weights, np.float64) / max(weights)
    quotas = relative / relative.sum() * num_pairs
    numbers = np.floor(quotas).astype(np.int64)
    order = np.lexsort((np.arange(len(quotas)), numbers - quotas, relative == 0))
    numbers[order[: num_pairs - int(numbers.sum())]] += 1
    return numbers.tolist()


def plan_mixed(
    src_lengths: NDArray[np.int32],
    tgt_lengths: NDArray[np.int32],
    sizes: Sequence[int],
    weights: Sequence[float],
    max_tokens: int,
    seed: int,
    epoch: int,
) -> list[Rows]:
    """Row indices of every batch of an epoch, in training order, sentences x longest side <= max_tokens.

    Rows of the first source come first, `sizes` of them for each source. Of every batch each source has its share, but
    for less than a pair (of k sources, less than k - 1). A source with a share must have a pair.
    """
    num_rows = len(src_lengths)
    assert sum(sizes) == num_rows
    numbers = pairs_an_epoch(weights, num_rows)
    starts = np.cumsum([0, *sizes])
    drawn = [
        starts[i] + draw(seed, i, size, epoch * number, number)
        for i, (size, number) in enumerate(zip(sizes, numbers, strict=True))
    ]
    passes = max(-(-number // size) for size, number in zip(sizes, numbers, strict=True) if number)
    num_parts = max(-(-num_rows // PLANNED_AT_ONCE), min(passes, num_rows // SMALLEST_PART), 1)
    generator = np.random.default_rng([seed, epoch])
    batches: list[Rows] = []
    for part in range(num_parts):
        of_sources = [rows[part * len(rows) // num_parts : (part + 1) * len(rows) // num_parts] for rows in drawn]
        orders = [rows[by_length(src_lengths[rows], tgt_lengths[rows], generator)[0]] for rows in of_sources]
        order = dealt_together(orders)
        side = np.maximum(src_lengths[order], tgt_lengths[order]).astype(np.int64)
        batches += fill(order, side, max_tokens, is_sorted=False)
    return [batches[i] for i in generator.permutation(len(batches))]


def draw(seed: int, source: int, size: int, first: int, number: int) -> Rows:
    """Places `first` to `first + number - 1` in the endless row of the permutations of range(size)."""
    taken = [np.empty(0, np.int64)]
    passes = max(1, DRAWN_AT_ONCE // max(1, size))
    while number:
        block, offset = divmod(first, passes * size)
        generator = np.random.default_rng([seed, source, block, MIXING])
        rows = generator.permuted(np.tile(np.arange(size), (passes, 1)), axis=1).ravel()[offset : offset + number]
        taken.append(rows)
        first, number = first + len(rows), number - len(rows)
    return np.concatenate(taken)


def dealt_together(orders: list[Rows]) -> Rows:
    """All rows in one order, in which each list is in its own order and spread evenly from the beginning to the end."""
    places = [(np.arange(len(order)) + 0.5) / max(1, len(order)) for order in orders]
    return np.concatenate(orders)[np.argsort(np.concatenate(places), kind="stable")]
