"""Sources read in blocks of pairs with some neighbours on both ends, as often as a check needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from transformer_mt.data.sources.source import Source

BLOCK = 4_000  # pairs


@dataclass(frozen=True)
class Block:
    """Neighbouring pairs of one source. `first` is the place of the first among all pairs of the split, from 0.

    `src` and `tgt` have `lead` pairs more before it, and as many as there are behind the last of `lines`.
    """

    source: int
    first: int
    lead: int
    src: list[str]
    tgt: list[str]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """The pairs of the block itself."""
        own = slice(self.lead, self.lead + len(self.lines))
        return self.src[own], self.tgt[own]


def read_blocks(sources: Sequence[Source], what: str, margin: int = 0) -> Iterator[Block]:
    """All pairs of the sources in their order, with a bar that says what is done with them."""
    first = 0
    with tqdm(desc=what, unit=" pairs", leave=False, disable=None) as bar:
        for number, source in enumerate(sources):
            for block in _of_source(source, number, first, margin):
                yield block
                first = block.first + len(block)
                bar.update(len(block))


def _of_source(source: Source, number: int, first: int, margin: int) -> Iterator[Block]:
    src: list[str] = []
    tgt: list[str] = []
    lines: list[int] = []
    lead = 0

    def cut(size: int) -> Block:
        """The next block; what no later one needs is forgotten."""
        nonlocal first, lead
        end = lead + size
        block = Block(number, first, lead, src[: end + margin], tgt[: end + margin], lines[lead:end])
        gone = max(0, end - margin)
        del src[:gone], tgt[:gone], lines[:gone]
        first, lead = first + size, end - gone
        return block

    for block in source.blocks():
        src += block.src
        tgt += block.tgt
        lines += block.lines
        while len(lines) >= lead + BLOCK + margin:
            yield cut(BLOCK)
    while (left := len(lines) - lead) > 0:
        yield cut(min(left, BLOCK))
