"""The check of whole splits: two readings for what is wrong, one of samples between them, and one for the texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.checking.explaining import Case, explain
from transformer_mt.checking.faults.duplicates import duplicate_flags
from transformer_mt.checking.faults.languages import ABSENT, is_there
from transformer_mt.checking.faults.leaks import HeldOut
from transformer_mt.checking.faults.ratios import Bands
from transformer_mt.checking.faults.rules import BITS, TAKEN_OUT
from transformer_mt.checking.first_look import FirstLook, look_first
from transformer_mt.checking.reading import Block, read_blocks
from transformer_mt.checking.second_look import Learned, learn, look_again
from transformer_mt.checking.shifts import MARGIN, shifted_parts
from transformer_mt.config.sections.section import SPLITS
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.sources.source import Source, changed_error
from transformer_mt.errors import UserError

MAX_WORDS = 1024  # where no config says how long a sentence may be
STRETCH, MOST_STRETCHES = 100, 60  # neighbouring pairs of which a corpus is learned, and how often


Direction = tuple[str, str]  # codes of the languages: of the source, and of the target


class Pair(NamedTuple):
    """A pair with what is wrong with it: the details of each fault by its name."""

    source: int
    line: int
    src: str
    tgt: str
    flags: int
    faults: dict[str, str]


class ShiftedPart(NamedTuple):
    """From `first` to `last`, as the source counts its pairs, line n translates line n + shift of the other side."""

    source: int
    first: int
    last: int
    shift: int


@dataclass
class CheckedSplit:
    """What was found in a split. `flags` has the bits of each pair, `path` its shift."""

    name: str
    sources: list[Source]
    flags: NDArray[np.uint32]
    path: NDArray[np.int16]
    learned: Learned
    held_out: HeldOut | None
    examples: dict[str, list[Pair]] = field(default_factory=dict)
    shifts: list[ShiftedPart] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    direction: Direction | None = None  # where the config has several, each of which is checked by itself

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs have each fault, in the order of the table, those that none has left out."""
        found = {name: int(((self.flags & bit) != 0).sum()) for name, bit in BITS.items()}
        return {name: number for name, number in found.items() if number}

    @property
    def num_taken_out(self) -> int:
        """The pairs that `--write` takes out."""
        return int(((self.flags & TAKEN_OUT) != 0).sum())

    def blocks(self) -> Iterator[tuple[Block, NDArray[np.uint32]]]:
        """All pairs once more, with their bits. UserError where they are others than before."""
        done = 0
        for block in read_blocks(self.sources, "Showing"):
            done += len(block)
            if done > len(self):
                break
            yield block, self.flags[block.first : done]
        if done != len(self):
            raise changed_error(self.sources)

    def pairs_of(self, block: Block, chosen: Sequence[int]) -> Iterator[Pair]:
        """The pairs at these places of a block, explained."""
        src, tgt = block.sides
        for number in chosen:
            beyond = is_beyond(src[number]), is_beyond(tgt[number])
            a, b = "" if beyond[0] else src[number], "" if beyond[1] else tgt[number]
            place = block.first + number
            flags = int(self.flags[place])
            faults = explain(Case(a, b, int(self.path[place]), self.learned, self.held_out, any(beyond)), flags)
            yield Pair(block.source, block.lines[number], a, b, flags, faults)


def check_sources(sources: dict[str, list[Source]], max_words: int, num_examples: int) -> list[CheckedSplit]:
    """Check the sources of the splits: what is normal is learned from `train`, which is also held against the others.

    Sources of several directions are checked direction by direction, those of `train` first: what is normal in one,
    such as its languages, is not in another.

    Raises UserError for sources that cannot be read or have no pair.
    """
    held_out, others = HeldOut(), [(name, sources[name]) for name in SPLITS[1:] if sources.get(name)]
    for name, some in others:
        for block in read_blocks(some, f"Reading the {name}"):
            held_out.add(name, zip(*block.sides, strict=True), block.first)
    known = held_out if len(held_out) else None
    several = len({_direction(one) for some in sources.values() for one in some}) > 1
    checked: list[CheckedSplit] = []
    learned: dict[Direction, Learned] = {}
    for name, some in [("train", sources["train"]), *others]:
        for direction in dict.fromkeys(map(_direction, some)):
            own = [one for one in some if _direction(one) == direction]
            against, taught = (known, None) if name == "train" else (None, learned.get(direction))
            split = check_split(name, own, max_words, num_examples, against, taught)
            split.direction = direction if several else None
            if name == "train":
                learned[direction] = split.learned
            checked.append(split)
    return checked


def _direction(source: Source) -> Direction:
    return source.data.languages_of(source.config)


def check_split(
    name: str,
    sources: list[Source],
    max_words: int,
    num_examples: int,
    held_out: HeldOut | None,
    learned: Learned | None,
) -> CheckedSplit:
    """Check the pairs of some sources, by what another split has taught where that is given."""
    first = look_first(read_blocks(sources, f"Checking the {name}, first reading"), max_words)
    if not len(first):
        names = ", ".join(source.description for source in sources)
        raise UserError(f"{names} holds not a single pair. Check that these are the files you mean.")
    stretches = _stretches(sources, len(first)) if learned is None else []
    known = learned or learn(first, stretches)
    again, path = look_again(read_blocks(sources, f"Checking the {name}, second reading", MARGIN), known, held_out)
    if len(again) != len(first):
        raise changed_error(sources)
    checked = CheckedSplit(name, sources, _all_flags(first, again, path, known), path, known, held_out)
    checked.remarks += [] if learned else known.remarks
    if not is_there() and not learned:
        checked.remarks.append(ABSENT)
    _collect(checked, num_examples)
    return checked


def _all_flags(
    first: FirstLook, again: NDArray[np.uint32], path: NDArray[np.int16], learned: Learned
) -> NDArray[np.uint32]:
    flags = first.flags & ~np.uint32(learned.not_counted)
    is_there = (first.flags & BITS["blank"]) == 0
    is_there &= (first.lengths > 0).all(axis=0)
    flags[is_there] |= again[is_there]
    if bands := Bands.of(*first.lengths) or learned.bands:  # a validation may hold longer sentences than the training
        flags[bands.outside(*first.lengths) & is_there] |= BITS["ratio"]
    # Beside a wrong line lengths, numbers and names say nothing.
    flags[path != 0] &= ~np.uint32(BITS["ratio"] | BITS["numbers"] | BITS["names"])
    flags[path != 0] |= BITS["shift"]
    # Of two equal sides one is in another language, which is known already.
    flags[(flags & BITS["copy"]) != 0] &= ~np.uint32(BITS["language"])
    return flags | duplicate_flags(first.keys, is_there, (flags & TAKEN_OUT) == 0)


def _stretches(sources: Sequence[Source], number: int) -> list[tuple[list[str], list[str]]]:
    """Neighbouring pairs from all over the sources, the last ones included."""
    size = min(STRETCH, max(1, number // 10))
    many = min(MOST_STRETCHES, number // size)
    starts = [int(start) for start in np.linspace(0, number - size, many)]
    found: list[tuple[list[str], list[str]]] = [([], []) for _ in starts]
    for block in read_blocks(sources, "Reading samples"):
        for start, stretch in zip(starts, found, strict=True):
            begin, end = max(start - block.first, 0), min(start + size - block.first, len(block))
            for side, texts in enumerate(block.sides):
                stretch[side].extend("" if is_beyond(text) else text for text in texts[begin : max(begin, end)])
    return found


def _collect(checked: CheckedSplit, num_examples: int) -> None:
    """Read the texts of the first pairs with each fault, and the lines of the shifts."""
    parts = shifted_parts(checked.path)
    borders = sorted({place for part in parts for place in (part.first, part.last)})
    wanted = set(borders)
    for bit in BITS.values():
        wanted |= set(np.flatnonzero(checked.flags & bit)[:num_examples].tolist())
    if not wanted:
        return
    order, lines = np.array(sorted(wanted)), {}
    for block, _ in checked.blocks():
        own = order[(order >= block.first) & (order < block.first + len(block))] - block.first
        for number, pair in zip(own.tolist(), checked.pairs_of(block, own.tolist()), strict=True):
            lines[block.first + number] = pair.source, pair.line
            for name in pair.faults:
                some = checked.examples.setdefault(name, [])
                if len(some) < num_examples:
                    some.append(pair)
    for part in parts:  # of a part that reaches over several sources, the first says where it is
        (source, first), (_, last) = lines[part.first], lines[part.last]
        checked.shifts.append(ShiftedPart(source, first, last, part.shift))
