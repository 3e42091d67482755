"""`{mono: FILE}`: text in one language. Both sides are the line; `data.noise` makes the source of it."""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.data.sources.files import read_line_blocks, source_file
from transformer_mt.data.sources.source import PairBlock, RawPair, Source


class Mono(Source):
    """A line a sentence, blank ones passed over."""

    unit = "line"

    @property
    def description(self) -> str:
        return str(self.config.mono)

    def files(self) -> list[Path]:
        return [source_file(self.description, self.data)]

    def key(self) -> list[object]:
        return ["mono", self.digests()]

    def pairs(self) -> Iterator[RawPair]:
        for block in self.blocks():
            yield from map(RawPair, *block)

    def blocks(self) -> Iterator[PairBlock]:
        number = 0
        for lines in read_line_blocks(self.files()[0]):
            yield PairBlock(lines, lines, range(number + 1, number + 1 + len(lines)))
            number += len(lines)
