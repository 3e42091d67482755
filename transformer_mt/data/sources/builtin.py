"""The built-in corpus as a source."""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.data.sources.source import RawPair, Source


class Builtin(Source):
    """`{builtin: en-es, split: SPLIT}`."""

    @property
    def description(self) -> str:
        return f"builtin:{self.config.builtin} ({self.config.split})"

    def files(self) -> list[Path]:
        return []  # they are part of the package

    def sizes(self) -> list[int]:
        from transformer_mt.data.builtin import SIZES

        return list(SIZES)

    def key(self) -> list[object]:
        from transformer_mt.data.builtin import IDENTITY

        return ["builtin", self.config.builtin, self.config.split, IDENTITY, *["reverse"] * self.config.reverse]

    def pairs(self) -> Iterator[RawPair]:
        from transformer_mt.data.builtin import builtin_pairs

        for number, (src, tgt) in enumerate(builtin_pairs(str(self.config.split)), start=1):
            yield RawPair(tgt, src, number) if self.config.reverse else RawPair(src, tgt, number)
