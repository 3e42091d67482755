"""The second reading: what a pair shows beside the rest of its corpus, and beside the validation and the test."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.checking.faults.languages import is_there, language_of_side, other_language
from transformer_mt.checking.faults.leaks import HeldOut
from transformer_mt.checking.faults.names import names_in, other_names
from transformer_mt.checking.faults.pair_texts import MOST_READ
from transformer_mt.checking.faults.ratios import Bands
from transformer_mt.checking.faults.rules import BITS
from transformer_mt.checking.faults.scripts import SCRIPTS, script_counts
from transformer_mt.checking.faults.side_words import SideWords
from transformer_mt.checking.first_look import FirstLook
from transformer_mt.checking.matching import Matcher, Stretch, train_matcher
from transformer_mt.checking.reading import Block
from transformer_mt.checking.shifts import path_of
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.machine.workers import on_all_cores
from transformer_mt.plurals import counted

LOGGER = logging.getLogger(__name__)
MAIN_SCRIPT = 0.03  # of a side's letters make a script one of its own
FOREIGN = 0.5  # of a text's letters
LEAST_PAIRS = 50  # of a corpus say what is normal in it
NORMAL_MARKUP, NORMAL_NUMBERS, NORMAL_FORMS = 0.2, 0.2, 0.2  # shares beyond which nothing is out of the ordinary
RARE, FEW = 0.01, 20  # share of all pairs, and pairs: what is rarer is never how a corpus is


@dataclass(frozen=True)
class Learned:
    """What is normal in a corpus, as its first reading and stretches of it showed."""

    scripts: NDArray[np.bool_]  # (2, scripts): those of each side
    words: SideWords
    names: frozenset[str]
    bands: Bands | None
    languages: tuple[str | None, str | None]
    matcher: Matcher | None
    not_counted: int  # bits of faults that are normal here
    remarks: tuple[str, ...]


def learn(first: FirstLook, stretches: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Learned:
    """What a corpus says of itself. Stretches are neighbouring pairs from all over it, without those beyond reading."""
    totals = np.maximum(first.scripts.sum(axis=1, keepdims=True), 1)
    num_pairs, is_enough = len(first), len(first) >= LEAST_PAIRS
    remarks, not_counted = [], 0
    for name, share, of, what in (
        ("markup", NORMAL_MARKUP, num_pairs, "markup"),
        ("mixed_forms", NORMAL_FORMS, num_pairs, "decomposed accents"),
        ("numbers", NORMAL_NUMBERS, first.num_with_numbers, "numbers that differ"),
    ):
        number = int(((first.flags & BITS[name]) != 0).sum())
        if is_enough and number > max(share * of, RARE * num_pairs, FEW):
            not_counted |= BITS[name]
            have = counted(number, "pair has", "pairs have")
            remarks.append(f"{name}: {have} {what}, which is how this corpus is; not counted")
    languages: tuple[str | None, str | None] = (None, None)
    if is_there():
        texts = [[text for stretch in stretches for text in stretch[side]] for side in (0, 1)]
        languages = language_of_side(texts[0]), language_of_side(texts[1])
    bands = Bands.of(*first.lengths)
    if bands is None:
        remarks.append("ratio: too few pairs to know what is normal; not looked for")
    if compiled_kernels() is None:
        LOGGER.warning("numba does not work here, so looking for shifts takes some 20 times as long")
    matcher = train_matcher([Stretch(*stretch) for stretch in stretches])
    if matcher is None:
        remarks.append("shift: the aligner cannot tell translations from chance in these pairs; not looked for")
    return Learned(
        first.scripts >= MAIN_SCRIPT * totals if is_enough else np.ones_like(first.scripts, np.bool_),
        first.words,
        names_in(first.names),
        bands,
        languages,
        matcher,
        not_counted,
        tuple(remarks),
    )


class _Seen(NamedTuple):
    flags: NDArray[np.uint32]
    path: NDArray[np.int16]


def look_again(
    blocks: Iterable[Block], learned: Learned, held_out: HeldOut | None
) -> tuple[NDArray[np.uint32], NDArray[np.int16]]:
    """The bits of each pair's faults beside the rest, and its shift. Blocks have `MARGIN` neighbours."""
    seen = list(on_all_cores(partial(_see, learned, held_out), blocks, "the check of the data"))
    if not seen:
        return np.zeros(0, np.uint32), np.zeros(0, np.int16)
    return np.concatenate([one.flags for one in seen]), np.concatenate([one.path for one in seen])


def _see(learned: Learned, held_out: HeldOut | None, block: Block) -> _Seen:
    whole = [["" if is_beyond(text) else text for text in side] for side in block.sides]
    sides = [[text[:MOST_READ] for text in side] for side in whole]
    src, tgt = sides
    flags = np.zeros(len(block), np.uint32)
    elsewhere = []
    for side, texts in enumerate(sides):
        flags[foreign_scripts(texts, learned.scripts[side])] |= BITS["script"]
        elsewhere.append(learned.words.elsewhere(side, texts))
        if own := learned.languages[side]:
            flags[[other_language(text, own) is not None for text in texts]] |= BITS["language"]
        if held_out is not None:
            flags |= held_out.flags(side, whole[side])
    flags[elsewhere[0] != elsewhere[1]] |= BITS["language"]
    is_swapped = elsewhere[0] & elsewhere[1]
    flags[is_swapped] &= ~np.uint32(BITS["language"] | BITS["script"])
    flags[is_swapped] |= BITS["swapped"]
    if learned.names:
        found = [other_names(a, b, learned.names) is not None for a, b in zip(src, tgt, strict=True)]
        flags[found] |= BITS["names"]
    path = np.zeros(len(block), np.int16)
    if learned.matcher:
        around = Stretch(block.src, block.tgt)
        path = path_of(learned.matcher, around)[block.lead : block.lead + len(block)]
    return _Seen(flags, path)


def foreign_scripts(texts: Sequence[str], own: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which texts have over half of their letters in scripts that are not their side's own."""
    counts = script_counts(texts)
    return counts[:, ~own].sum(axis=1) > FOREIGN * np.maximum(counts.sum(axis=1), 1)


def foreign_script(text: str, own: NDArray[np.bool_]) -> str | None:
    """The script of most of a text's letters, if it is not one of its side's own."""
    counts = script_counts([text])[0]
    best = int(np.where(own, 0, counts).argmax())
    return SCRIPTS[best] if counts[~own].sum() > FOREIGN * max(1, counts.sum()) else None
