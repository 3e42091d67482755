"""The first reading: what each pair shows by itself, and what only the whole corpus can say is normal.

What is kept of a pair has a fixed size, whatever its length: 44 bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.checking.faults.names import Counts, add_counts, count_names
from transformer_mt.checking.faults.pair_texts import MOST_READ, faults_of_pair, letters_of, numbers_of
from transformer_mt.checking.faults.rules import BITS
from transformer_mt.checking.faults.scripts import SCRIPTS, script_counts
from transformer_mt.checking.faults.side_words import Counts as WordCounts
from transformer_mt.checking.faults.side_words import SideWords, counted
from transformer_mt.checking.reading import Block
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.split import sentence_key
from transformer_mt.machine.workers import on_all_cores


class _Seen(NamedTuple):
    """What a block showed. keys: uint64 (3, pairs): of the pair, of its letters, of its source."""

    keys: NDArray[np.uint64]
    lengths: NDArray[np.uint32]  # (2, pairs), characters
    flags: NDArray[np.uint32]
    scripts: NDArray[np.int64]  # (2, scripts)
    words: tuple[WordCounts, WordCounts]
    names: Counts
    num_with_numbers: int


@dataclass
class FirstLook:
    """Of all pairs, in their order. See `_Seen`."""

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((3, 0), np.uint64))
    lengths: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((2, 0), np.uint32))
    flags: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    scripts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, len(SCRIPTS)), np.int64))
    words: SideWords = field(default_factory=SideWords)
    names: Counts = field(default_factory=dict)
    num_with_numbers: int = 0

    def __len__(self) -> int:
        return len(self.flags)


def look_first(blocks: Iterable[Block], max_words: int) -> FirstLook:
    """Read all blocks, on all cores."""
    found = FirstLook()
    keys, lengths, flags = [], [], []
    for seen in on_all_cores(partial(_see, max_words), blocks, "the check of the data"):
        keys.append(seen.keys)
        lengths.append(seen.lengths)
        flags.append(seen.flags)
        found.scripts += seen.scripts
        for side in (0, 1):
            found.words.add(side, seen.words[side])
        add_counts(found.names, seen.names)
        found.num_with_numbers += seen.num_with_numbers
    if flags:
        found.flags = np.concatenate(flags)
        found.lengths = np.concatenate(lengths, axis=1)
        lengths.clear()
        found.keys = np.concatenate(keys, axis=1)
    found.words.learn()
    return found


def _see(max_words: int, block: Block) -> _Seen:
    src, tgt = block.sides
    # A line that is too long to be kept in memory is nothing but its length.
    src, tgt = (["" if is_beyond(text) else text for text in side] for side in (src, tgt))
    beyond = np.array([is_beyond(a) or is_beyond(b) for a, b in zip(*block.sides, strict=True)], np.bool_)
    letters = [letters_of(text) for text in src], [letters_of(text) for text in tgt]
    keys = np.empty((3, len(src)), np.uint64)
    keys[0] = [_hash(f"{a}\0{b}") for a, b in zip(src, tgt, strict=True)]
    keys[1] = [_hash(f"{a}\0{b}") for a, b in zip(*letters, strict=True)]
    keys[2] = [sentence_key(text) for text in src]
    pairs = list(zip(src, tgt, zip(*letters, strict=True), strict=True))
    flags = np.array([faults_of_pair(*pair, max_words) for pair in pairs], np.uint32)
    flags[beyond] = BITS["too_long"]
    scripts = np.stack([script_counts([text[:MOST_READ] for text in side]).sum(axis=0) for side in (src, tgt)])
    with_numbers = sum(
        bool(numbers_of(a[:MOST_READ]) and numbers_of(b[:MOST_READ])) for a, b in zip(src, tgt, strict=True)
    )
    return _Seen(
        keys,
        np.array([[len(text.strip()) for text in side] for side in (src, tgt)], np.uint32),
        flags,
        scripts,
        (counted(src), counted(tgt)),
        count_names(zip(src, tgt, strict=True)),
        with_numbers,
    )


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
