"""Two aligned text files: line n of one translates line n of the other."""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.data.sources.files import read_line_blocks, read_raw_lines, source_file
from transformer_mt.data.sources.source import PairBlock, RawPair, Source
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted


class TextPair(Source):
    """`{src: FILE, tgt: FILE}`.

    Both files are read side by side. Only after the last pair of the shorter file does it show that their line counts
    differ, which raises UserError. So use no pair before the iterator has ended.
    """

    unit = "line"

    @property
    def names(self) -> list[str]:
        """Of the file of the sources, and of that of the targets."""
        names = [str(self.config.src), str(self.config.tgt)]
        return names[::-1] if self.config.reverse else names

    @property
    def description(self) -> str:
        return " / ".join(self.names)

    def files(self) -> list[Path]:
        return [source_file(name, self.data) for name in self.names]

    def key(self) -> list[object]:
        return ["text", self.digests()]

    def pairs(self) -> Iterator[RawPair]:
        for block in self.blocks():
            yield from map(RawPair, *block)

    def blocks(self) -> Iterator[PairBlock]:
        """Each block holds as many pairs as both files have in memory. UserError for a line of one that cannot be read
        and has a partner, or when the files have ended and are not of one length.
        """
        paths = self.files()
        src_blocks, tgt_blocks = (_or_error(read_line_blocks(path)) for path in paths)
        src, tgt = next(src_blocks), next(tgt_blocks)
        number = 0
        while not isinstance(src, UserError) and not isinstance(tgt, UserError) and (size := min(len(src), len(tgt))):
            yield PairBlock(src[:size], tgt[:size], range(number + 1, number + 1 + size))
            number += size
            src = src[size:] or next(src_blocks)
            tgt = tgt[size:] or next(tgt_blocks)
        for side, other in ((src, tgt), (tgt, src)):
            if isinstance(side, UserError) and other:  # the line that cannot be read has a partner
                raise side
        if src or tgt:
            self.refuse_unequal()

    def refuse_unequal(self) -> None:
        """Raise UserError where the files are not of one length, for whoever wants to know before all is read."""
        paths = self.files()
        num_src, num_tgt = (sum(1 for _ in read_raw_lines(path)) for path in paths)
        if num_src != num_tgt:
            raise UserError(
                f"{paths[0]} has {counted(num_src, 'line')} and {paths[1]} has {num_tgt:,}. "
                "Line n of one must translate line n of the other: find where they part, and make them equal."
            )


def _or_error(blocks: Iterator[list[str]]) -> Iterator[list[str] | UserError]:
    """The blocks; an error comes in the place of its block. After the last, empty blocks follow without end."""
    try:
        yield from blocks
    except UserError as error:
        yield error
    while True:
        yield []
