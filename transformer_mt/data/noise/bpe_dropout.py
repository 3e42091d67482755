"""BPE-dropout (Provilkov et al. 2020): other pieces of the same words, so that a model learns how pieces make words.

Byte-pair encoding merges neighbours until nothing is left to merge. Here each possible merge is dropped by chance, anew
before every single merge (algorithm 1). The library of our tokenizers has that too, but draws from a generator that
nobody can seed. Our numbers are functions of (seed, epoch, side, line) alone.
"""

import json
from functools import cache
from types import ModuleType

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from transformer_mt.config.special_ids import SPECIAL_TOKENS
from transformer_mt.data.noise import merge_kernels
from transformer_mt.data.tokenizers import BYTES_BY_CHARACTER, BPETokenizer, bytes_of
from transformer_mt.machine.numba_modules import needs_numba, run_loop

Flat = tuple[NDArray[np.int32], NDArray[np.int64]]  # ids of sentences, one after the other, and how many each has


class BPEDropout:
    """Segments what a BPE tokenizer has encoded once more, with merges dropped. Threads may share it."""

    def __init__(self, tokenizer: BPETokenizer, probability: float) -> None:
        """`probability` of 0 gives the tokenizer's own ids, of 1 the bytes."""
        self.threshold = round(probability * 2**32)
        model = json.loads(tokenizer.backend.to_str())["model"]
        vocab: dict[str, int] = model["vocab"]
        spelled = sorted((i, b"" if entry in SPECIAL_TOKENS else bytes_of(entry)) for entry, i in vocab.items())
        self.pieces = np.array([byte for _, piece in spelled for byte in piece], np.uint8)
        self.piece_starts = np.cumsum([0, *(len(piece) for _, piece in spelled)], dtype=np.int32)
        self.byte_ids = np.zeros(256, np.int32)
        for character, byte in BYTES_BY_CHARACTER.items():
            self.byte_ids[byte] = vocab[character]
        merges = [
            (vocab[left], vocab[right], rank, vocab[left + right]) for rank, (left, right) in enumerate(model["merges"])
        ]
        table = np.array(sorted(merges), np.int32).reshape(-1, 4)
        self.first = np.searchsorted(table[:, 0], np.arange(len(vocab) + 1)).astype(np.int32)
        self.right = np.ascontiguousarray(table[:, 1])
        self.merges = np.ascontiguousarray(table[:, 2:]).reshape(-1)
        self.is_word = _word_characters()

    def segment(self, ids: NDArray[np.integer], lengths: NDArray[np.int64], seeds: NDArray[np.int64]) -> Flat:
        """Other ids of these sentences. A seed a sentence (`line_seeds`) decides which merges are dropped in it."""
        ids = np.ascontiguousarray(ids, np.int32)
        ends = np.concatenate([[0], np.cumsum(np.diff(self.piece_starts)[ids], dtype=np.int64)])
        starts = ends[np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])]
        num_bytes, longest = int(starts[-1]), int(np.diff(starts).max(initial=0))
        letters, begins = np.empty((2, num_bytes), np.uint8)
        symbols, out = np.empty((2, num_bytes), np.int32)
        ranks, made = np.empty((2, longest), np.int32)
        found = np.empty(len(lengths), np.int64)
        run_loop(_compiled(),
            merge_kernels.spell, ids, self.piece_starts, self.pieces, self.byte_ids, self.is_word, letters, symbols,
            begins,
        )  # fmt: skip
        run_loop(_compiled(),
            merge_kernels.merge, symbols, begins, starts, seeds, self.threshold, self.first, self.right, self.merges,
            ranks, made, out, found,
        )  # fmt: skip
        return out[: int(found.sum())], found


def line_seeds(place: tuple[int, ...], lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """A seed below 2**63 for each line: a function of its number and of the place, such as (seed, epoch, side)."""
    key = np.random.SeedSequence(place).generate_state(1, np.uint64)[0]
    return (split_mix(key, lines.astype(np.uint64)) >> np.uint64(1)).astype(np.int64)


def split_mix(seeds: np.uint64 | NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output of SplitMix64 (Steele et al. 2014, figure 17) at these places of the sequences from the seeds on."""
    with np.errstate(over="ignore"):
        mixed = seeds + places * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@cache
def _word_characters() -> NDArray[np.uint8]:
    """By code point, whether the library takes it for a letter, mark or digit: its unicode may be another than ours."""
    others = pre_tokenizers.Split(hf.Regex(r"[\p{L}\p{M}\p{N}]+"), "removed")
    found = np.ones(0x110000, np.uint8)
    for first in range(0, len(found), 2048):  # few at a time: the library's time grows with their square
        if first not in range(0xD800, 0xE000):  # halves of surrogate pairs, which no text holds
            for _, (start, end) in others.pre_tokenize_str("".join(map(chr, range(first, first + 2048)))):
                found[first + start : first + end] = 0
    return found


@needs_numba
def _compiled() -> ModuleType:
    """`compiled_merge.py`; without numba the loops take a hundred times as long."""
    from transformer_mt.data.noise import compiled_merge

    return compiled_merge
