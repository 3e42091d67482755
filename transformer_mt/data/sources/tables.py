"""Sentence pairs out of Parquet files and tables of Arrow, batch by batch."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from transformer_mt.data.sources.columns import NESTED, Columns, as_text, choose_columns
from transformer_mt.data.sources.files import open_bytes
from transformer_mt.data.sources.source import RawPair
from transformer_mt.errors import UserError

BATCH_ROWS = 1000
pc: Any = compute  # makes its functions when it is imported, where no type checker sees them


def parquet_pairs(path: Path, choices: Sequence[tuple[str, str]]) -> Iterator[RawPair]:
    """The pairs of a Parquet file: flat columns, or one struct column `translation`."""
    with open_bytes(path) as raw:
        try:
            file = pq.ParquetFile(raw, page_checksum_verification=True)  # if the writer left checksums
            chosen = choose_of_schema(file.schema_arrow, choices, str(path))
            needed = [NESTED] if chosen.nested else list(dict.fromkeys(chosen[:2]))
            # Each group of rows by itself: pyarrow has no batch over two of them where a struct holds a dictionary.
            groups = ([group] for group in range(file.num_row_groups))
            batches = (file.iter_batches(batch_size=BATCH_ROWS, row_groups=group, columns=needed) for group in groups)
            yield from batch_pairs(chain.from_iterable(batches), chosen, str(path))
        except (pa.ArrowException, OSError) as error:
            why = str(error).rstrip(".")
            raise UserError(f"{path} is not a whole Parquet file: {why}. Write or fetch it again.") from None


def choose_of_schema(schema: pa.Schema, choices: Sequence[tuple[str, str]], place: str) -> Columns:
    """`choose_columns` for a table of this schema."""
    nested: list[str] = []
    if schema.names.count(NESTED) == 1 and pa.types.is_struct(kind := schema.field(NESTED).type):
        nested = [kind.field(index).name for index in range(kind.num_fields)]
    return choose_columns(choices, schema.names, nested, place)


def batch_pairs(batches: Iterator[Any], chosen: Columns, place: str) -> Iterator[RawPair]:
    """Pairs from record batches or tables that hold the chosen columns; null is a blank side."""
    row = 0
    for batch in batches:
        sides = (_values(_column(batch, name, chosen.nested), name, row, place) for name in chosen[:2])
        for cells in zip(*sides, strict=True):
            row += 1
            where = f"{place}, row {row}"
            yield RawPair(as_text(cells[0], chosen.src, where), as_text(cells[1], chosen.tgt, where), row)


def _column(batch: Any, name: str, nested: bool) -> Any:
    """The column of this name, or the part of the column `translation`, which is null where all of that is."""
    if not nested:
        return batch.column(name)
    translation = batch.column(NESTED)
    return pc.struct_field(translation, [translation.type.get_field_index(name)])


def _values(column: Any, name: str, first: int, place: str) -> list[Any]:
    """The Python values of an Arrow column of this name, whose first row is row `first`, from 0, of the source."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        for row, cell in enumerate(column, start=first + 1):
            try:
                cell.as_py()
            except UnicodeDecodeError:
                raise UserError(
                    f"{place}, row {row}: the bytes are not UTF-8. Write the file again from text that is UTF-8."
                ) from None
            except (ValueError, OverflowError):  # a time, of a column without text, that Python has not
                as_text(cell, name, f"{place}, row {row}")
        raise
