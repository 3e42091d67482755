"""Sentence pairs out of Parquet files and `datasets` data sets, batch by batch."""

import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.cache import cache_errors, cache_folder, make_temporary_folder
from transformer_mt.data.columns import NESTED, Columns, RawPair, as_text, choose_columns, column_choices
from transformer_mt.data.files import open_bytes, source_path
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from datasets import Dataset

BATCH_ROWS = 1000
PATTERN = re.compile(r"[*?\[]|::|\$[\w{]")  # in the path of a folder, which `datasets` does not read as it stands


def parquet_pairs(path: Path, choices: Sequence[tuple[str, str]]) -> Iterator[RawPair]:
    """The pairs of a Parquet file: flat columns, or one struct column `translation`."""
    with open_bytes(path) as raw:
        try:
            file = pq.ParquetFile(raw, page_checksum_verification=True)  # where the writer left checksums
            chosen = _choose(file.schema_arrow, choices, str(path))
            needed = [NESTED] if chosen.nested else list(dict.fromkeys(chosen[:2]))
            batches = file.iter_batches(batch_size=BATCH_ROWS, columns=needed)
            yield from _batch_pairs(batches, chosen, str(path))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is not a whole Parquet file: {error}. Write or fetch it again.") from None


def hub_pairs(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    """The pairs of a data set of the hub, or of a local folder in that layout."""
    choices = column_choices(source, data)
    place = f"data set {source.hub}, split {source.split}"
    with _quiet(), _hub_dataset(source, data) as dataset:
        chosen = _choose(dataset.features.arrow_schema, choices, place)
        needed = [NESTED] if chosen.nested else list(dict.fromkeys(chosen[:2]))
        batches: Any = dataset.select_columns(needed).with_format("arrow").iter(batch_size=BATCH_ROWS)
        yield from _batch_pairs(batches, chosen, place)


def hub_stream(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    """The same without a copy on the disk: what is read is fetched and forgotten."""
    choices = column_choices(source, data)
    place = f"data set {source.hub}, split {source.split}"
    tables = _streamed(source, data)
    first = next(tables, None)
    if first is not None:
        chosen = _choose(first.schema, choices, place)
        yield from _batch_pairs(chain([first], tables), chosen, place)


def _streamed(source: SourceConfig, data: DataConfig) -> Iterator[pa.Table]:
    """The split in tables of some rows, all columns of it."""
    folder = _local_folder(source, data)
    with _quiet(), _hub_errors(source, local=folder is not None):
        dataset: Any = _load(source, data, folder, streaming=True)
        tables = iter(dataset.with_format("arrow").iter(batch_size=BATCH_ROWS))
    while True:
        with _quiet(), _hub_errors(source, local=folder is not None):  # never around a yield
            table = next(tables, None)
        if table is None:
            return
        yield table


def _load(source: SourceConfig, data: DataConfig, folder: Path | None, **options: Any) -> Any:
    """The split as `datasets` loads it. In CSV files the words NA, null and nan are words, 007 and True are text."""
    import datasets

    name = str(folder.absolute() if folder else source.hub)  # a bare "csv" is a loader to `datasets`
    if hasattr(datasets.load_dataset_builder(name, source.config).config, "keep_default_na"):
        columns = {str(column) for choice in column_choices(source, data) for column in choice}
        options |= {"keep_default_na": False, "converters": dict.fromkeys(columns, str)}
    return datasets.load_dataset(name, source.config, split=str(source.split), **options)


def local_hub_files(source: SourceConfig, data: DataConfig) -> list[Path]:
    """The data files of a hub source that is a local folder, sorted; empty where it is a name on the hub."""
    folder = _local_folder(source, data)
    if folder is None:
        return []
    import datasets

    with _quiet(), _hub_errors(source, local=True):
        found = datasets.load_dataset_builder(str(folder.absolute()), source.config).config.data_files or {}
    files = {Path(name) for names in found.values() for name in names}
    card = folder / "README.md"  # may declare the types of the columns
    return sorted(files | ({card} if card.is_file() else set()))


def _choose(schema: pa.Schema, choices: Sequence[tuple[str, str]], place: str) -> Columns:
    nested: list[str] = []
    if schema.names.count(NESTED) == 1 and pa.types.is_struct(kind := schema.field(NESTED).type):
        nested = [kind.field(index).name for index in range(kind.num_fields)]
    return choose_columns(choices, schema.names, nested, place)


def _batch_pairs(batches: Iterator[Any], chosen: Columns, place: str) -> Iterator[RawPair]:
    """Pairs from record batches or tables that hold the chosen columns; null is a blank side."""
    row = 0
    for batch in batches:
        columns = [batch.column(NESTED)] * 2 if chosen.nested else [batch.column(name) for name in chosen[:2]]
        for cells in zip(*(_values(column, row, place) for column in columns), strict=True):
            row += 1
            if chosen.nested:
                cells = [(cell or {}).get(name) for cell, name in zip(cells, chosen[:2], strict=True)]
            where = f"{place}, row {row}"
            yield RawPair(as_text(cells[0], chosen.src, where), as_text(cells[1], chosen.tgt, where), row)


def _values(column: Any, first: int, place: str) -> list[Any]:
    """The Python values of an Arrow column whose first row is row `first`, from 0, of the source."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        for row, cell in enumerate(column, start=first + 1):
            try:
                cell.as_py()
            except UnicodeDecodeError:
                raise UserError(
                    f"{place}, row {row}: the bytes are not UTF-8. Write the file again from text that is UTF-8."
                ) from None
        raise


def _local_folder(source: SourceConfig, data: DataConfig) -> Path | None:
    folder = source_path(str(source.hub), data)
    if folder.is_dir():
        if pattern := PATTERN.search(str(folder.absolute())):
            raise UserError(
                f"{folder.absolute()}: the library `datasets` takes {pattern[0]!r} in it for a pattern. Rename the "
                "folder, or name the files in it as csv, jsonl or parquet."
            )
        return folder
    if str(source.hub).startswith(("/", ".", "~")):
        raise UserError(f"There is no folder {folder.absolute()}. Check hub; relative paths start at data.root.")
    return None


@contextmanager
def _hub_dataset(source: SourceConfig, data: DataConfig) -> Iterator["Dataset"]:
    """The split, mapped into memory. What `datasets` makes of a local folder is deleted afterwards: `corpus.py` keeps
    its own copy, under a key that, unlike that of `datasets`, sees the bytes and not the time of the last change."""
    folder = _local_folder(source, data)
    temporary = None
    if folder is not None:
        beside = cache_folder(data) / "corpora" / "folder"
        with cache_errors(beside):
            temporary = make_temporary_folder(beside)
    try:
        with _hub_errors(source, local=folder is not None):
            cache_dir = None if temporary is None else str(temporary)
            dataset = _load(source, data, folder, cache_dir=cache_dir)
        yield dataset
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _hub_errors(source: SourceConfig, local: bool) -> Iterator[None]:
    """Whatever `datasets` and the libraries below it raise is about the name, the files or the network."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
        reason = " ".join(str(cause or error).split()) or type(error).__name__
        way_out = (
            "Check that the folder is whole, and that config and split are among its own."
            if local
            else "Check name, config, split and the network; or download it and name the folder: {hub: FOLDER, ...}."
        )
        asked = f"{source.hub} (config {source.config or 'not given'}, split {source.split})"
        raise UserError(f"The data set {asked} cannot be loaded: {reason.rstrip('.')}. {way_out}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the bars and the chatter of `datasets` off the terminal, and puts its settings back."""
    import datasets

    logger = logging.getLogger("datasets")
    level, bars = logger.level, datasets.are_progress_bars_disabled()
    logger.setLevel(logging.CRITICAL)  # what fails is told by _hub_errors, once
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
