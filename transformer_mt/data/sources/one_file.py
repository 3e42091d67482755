"""Files that hold both sides: TSV, CSV, JSON lines and Parquet."""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.sources.columns import column_choices, column_numbers
from transformer_mt.data.sources.files import read_lines, source_file
from transformer_mt.data.sources.records import csv_pairs, jsonl_pairs
from transformer_mt.data.sources.source import RawPair, Source
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted


class OneFile(Source):
    """A file of columns with names."""

    unit = "line"

    @property
    def description(self) -> str:
        return str(getattr(self.config, self.config.kind))

    @property
    def path(self) -> Path:
        return source_file(self.description, self.data)

    def files(self) -> list[Path]:
        return [self.path]

    def key(self) -> list[object]:
        return [self.config.kind, self.choices(), self.digests()]

    def choices(self) -> list[tuple[str, str]]:
        """See `column_choices`."""
        return column_choices(self.config, self.data)


class Tsv(OneFile):
    """`{tsv: FILE}`: one tab between the columns, which have numbers."""

    def key(self) -> list[object]:
        return ["tsv", column_numbers(self.config, self.data), self.digests()]

    def pairs(self) -> Iterator[RawPair]:
        """Blank lines are blank pairs; one too long for any model has two such sides; UserError for too few columns."""
        src, tgt = column_numbers(self.config, self.data)
        needed = max(src, tgt)
        for number, line in read_lines(self.path):
            fields = line.split("\t")
            if len(fields) >= needed:
                yield RawPair(fields[src - 1], fields[tgt - 1], number)
            elif is_beyond(line):
                yield RawPair(line, line, number)
            elif not line.strip():
                yield RawPair("", "", number)
            else:
                raise UserError(
                    f"{self.path}, line {number}: {counted(len(fields), 'column')}, but column "
                    f"{needed} is needed. Put one tab between the columns, or name others, for example columns: "
                    "{src: 1, tgt: 2}."
                )


class Csv(OneFile):
    """`{csv: FILE}`: the first line names the columns."""

    def pairs(self) -> Iterator[RawPair]:
        yield from csv_pairs(self.path, self.choices())


class Jsonl(OneFile):
    """`{jsonl: FILE}`: a JSON object a line."""

    def pairs(self) -> Iterator[RawPair]:
        yield from jsonl_pairs(self.path, self.choices())


class Parquet(OneFile):
    """`{parquet: FILE}`."""

    unit = "row"

    def pairs(self) -> Iterator[RawPair]:
        from transformer_mt.data.sources.tables import parquet_pairs  # pyarrow takes a while to import

        yield from parquet_pairs(self.path, self.choices())
