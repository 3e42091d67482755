"""The base of all kinds of sources: each gives sentence pairs, and names its files, its key and the places in it.

Text is read as it stands in the source: nothing is normalised, no word means "missing", no line is skipped.
A kind obeys `reverse` itself, where it chooses files or columns: the sides that it gives are in their places.
Blank pairs, and pairs with a side that `is_beyond`, are passed on; `corpus.py` drops and counts them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.sources.files import file_digest, file_size
from transformer_mt.errors import UserError

BLOCK_PAIRS = 10_000
BLOCK_CHARACTERS = 2**24


@dataclass(frozen=True, slots=True)
class RawPair:
    """Both sides as they stand in the source, and their line or row, counted from 1."""

    src: str
    tgt: str
    line: int


class PairBlock(NamedTuple):
    """Some `RawPair`s, side by side."""

    src: list[str]
    tgt: list[str]
    lines: Sequence[int]


class Source(ABC):
    """One place that sentence pairs come from, as the configuration names it.

    Creating the object reads nothing. Every method that reads raises `UserError` for what cannot be read.
    """

    unit = "row"  # what a pair's number counts

    def __init__(self, config: SourceConfig, data: DataConfig) -> None:
        self.config = config
        self.data = data

    @property
    @abstractmethod
    def description(self) -> str:
        """The source in a few words, as the configuration names it: `train.en / train.de`."""

    @abstractmethod
    def files(self) -> list[Path]:
        """The user's files that hold the pairs; none for the built-in corpus and for a data set of the hub."""

    @abstractmethod
    def pairs(self) -> Iterator[RawPair]:
        """The pairs in their order, blank ones included."""

    @abstractmethod
    def key(self) -> list[object]:
        """What identifies the content and all settings that say how to read it, as JSON; no paths and no times."""

    def blocks(self) -> Iterator[PairBlock]:
        """The same pairs, some thousand at a time, fewer if they are long: the quickest way to read all."""
        return _in_blocks(self.pairs())

    def tagged_blocks(self) -> Iterator[PairBlock]:
        """`blocks`, with the source's tag before each line that is not blank."""
        for block in self.blocks():
            yield block if self.config.tag is None else block._replace(src=[self._tagged(text) for text in block.src])

    def tagged_stream(self) -> Iterator[RawPair]:
        """`streamed`, with the source's tag before each line that is not blank."""
        for pair in self.streamed():
            yield pair if self.config.tag is None else replace(pair, src=self._tagged(pair.src))

    def _tagged(self, text: str) -> str:
        return f"{self.config.tag} {text}" if text.strip() else text

    def whole_key(self) -> list[object]:
        """`key`, and the tag where there is one."""
        return self.key() if self.config.tag is None else [*self.key(), ["tag", self.config.tag]]

    def streamed(self) -> Iterator[RawPair]:
        """The same pairs, read without a copy on the disk."""
        return self.pairs()

    def sizes(self) -> list[int]:
        """The number of bytes of each file."""
        return [file_size(path) for path in self.files()]

    def outline(self) -> list[object]:
        """What tells the source from others as far as that is known before it is read, as JSON."""
        columns = self.config.columns and self.config.columns.model_dump()
        reverse = ["reverse"] * self.config.reverse
        tag = [["tag", self.config.tag]] if self.config.tag else []
        return [self.config.kind, columns, self.config.config, self.config.split, self.sizes(), *reverse, *tag]

    def place(self, number: int) -> str:
        """Where a pair stands: `train.en / train.de, line 17`, or `a.parquet, row 17` where there are no lines."""
        return f"{self.description}, {self.unit} {number}"

    def without_pairs(self) -> UserError:
        """What to raise where one of several sources is empty, such as a file never written or a broken download."""
        return UserError(f"{self.description} holds not a single pair. Check it, or take it out of the sources.")

    def digests(self) -> list[str]:
        """A hash of each file's content."""
        return [file_digest(path) for path in self.files()]


def with_bar(blocks: Iterator[PairBlock], what: str) -> Iterator[PairBlock]:
    """The pairs, with a progress bar where standard error is a terminal."""
    from tqdm import tqdm

    with tqdm(desc=what, unit=" pairs", leave=False, disable=None) as bar:
        for block in blocks:
            yield block
            bar.update(len(block.lines))


def changed_error(sources: Sequence[Source]) -> UserError:
    """What to raise where a second reading gave other pairs than the first."""
    names = ", ".join(source.description for source in sources)
    return UserError(f"{names} changed while being read. Wait until nothing writes to it, and start again.")


def _in_blocks(pairs: Iterator[RawPair]) -> Iterator[PairBlock]:
    block: list[RawPair] = []
    num_characters = 0
    for pair in pairs:
        block.append(pair)
        num_characters += len(pair.src) + len(pair.tgt)
        if len(block) == BLOCK_PAIRS or num_characters >= BLOCK_CHARACTERS:
            yield _side_by_side(block)
            block, num_characters = [], 0
    if block:
        yield _side_by_side(block)


def _side_by_side(pairs: list[RawPair]) -> PairBlock:
    return PairBlock([pair.src for pair in pairs], [pair.tgt for pair in pairs], [pair.line for pair in pairs])
