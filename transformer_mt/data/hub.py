"""Sentence pairs out of data sets of the hub, and out of local folders in that layout."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.cache import cache_errors, cache_folder, make_temporary_folder
from transformer_mt.data.columns import NESTED, RawPair, column_choices
from transformer_mt.data.hub_folder import folder_pairs, hub_errors, local_folder, quiet, split_spans
from transformer_mt.data.tables import BATCH_ROWS, batch_pairs, choose_of_schema

if TYPE_CHECKING:
    from datasets import Dataset


def hub_pairs(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    """The pairs of a data set of the hub, or of a local folder in that layout."""
    folder = local_folder(source, data)
    own = folder_pairs(source, data, folder) if folder else None
    yield from _table_pairs(source, data, folder) if own is None else own


def hub_stream(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    """The same without a copy on the disk: what is read is fetched and forgotten."""
    folder = local_folder(source, data)
    own = folder_pairs(source, data, folder) if folder else None
    yield from _streamed_pairs(source, data, folder) if own is None else own


def _table_pairs(source: SourceConfig, data: DataConfig, folder: Path | None) -> Iterator[RawPair]:
    with quiet(), _loaded(source, data, folder) as dataset:
        chosen = choose_of_schema(dataset.features.arrow_schema, column_choices(source, data), _place(source))
        needed = [NESTED] if chosen.nested else list(dict.fromkeys(chosen[:2]))
        batches: Any = dataset.select_columns(needed).with_format("arrow").iter(batch_size=BATCH_ROWS)
        yield from batch_pairs(batches, chosen, _place(source))


def _streamed_pairs(source: SourceConfig, data: DataConfig, folder: Path | None) -> Iterator[RawPair]:
    tables = _streamed_tables(source, data, folder)
    first = next(tables, None)
    if first is not None:
        chosen = choose_of_schema(first.schema, column_choices(source, data), _place(source))
        yield from batch_pairs(chain([first], tables), chosen, _place(source))


def _streamed_tables(source: SourceConfig, data: DataConfig, folder: Path | None) -> Iterator[pa.Table]:
    """The split in tables of some rows, all columns of it."""
    with quiet(), hub_errors(source, local=folder is not None):
        parts = _streamed_parts(source, data, folder)
        tables = chain.from_iterable(part.with_format("arrow").iter(batch_size=BATCH_ROWS) for part in parts)
    while True:
        with quiet(), hub_errors(source, local=folder is not None):  # never around a yield
            table = next(tables, None)
        if table is None:
            return
        yield table


def _streamed_parts(source: SourceConfig, data: DataConfig, folder: Path | None) -> list[Any]:
    """What the split names, one after the other. `datasets` itself streams whole splits only."""
    split = str(source.split)
    if re.fullmatch(r"[\w.-]+", split) and split != "all":
        return [_load(source, data, folder, split, streaming=True)]
    splits = _load(source, data, folder, None, streaming=True)

    def size_of(name: str) -> int | None:
        told = splits[name].info.splits or {}
        return told[name].num_examples if name in told else None

    parts = []
    for name, first, end in split_spans(split, list(splits), size_of):
        rest = splits[name].skip(first)
        parts.append(rest if end is None else rest.take(end - first))
    return parts


def _place(source: SourceConfig) -> str:
    return f"data set {source.hub}, split {source.split}"


def _load(source: SourceConfig, data: DataConfig, folder: Path | None, split: str | None, **options: Any) -> Any:
    """The split as `datasets` loads it, None: all of them by name.

    In CSV files the words NA, null and nan are words, 007 and True are text, and a row with a cell too many does not
    move to the side.
    """
    import datasets

    name = str(folder.absolute() if folder else source.hub)
    if hasattr(datasets.load_dataset_builder(name, source.config).config, "keep_default_na"):
        columns = {str(column) for choice in column_choices(source, data) for column in choice}
        options |= {"keep_default_na": False, "converters": dict.fromkeys(columns, str), "index_col": False}
    return datasets.load_dataset(name, source.config, split=split, **options)


@contextmanager
def _loaded(source: SourceConfig, data: DataConfig, folder: Path | None) -> Iterator["Dataset"]:
    """The split, mapped into memory. What `datasets` makes of a local folder is deleted afterwards: `corpus.py` keeps
    its own copy, under a key that, unlike that of `datasets`, sees the bytes and not the time of the last change."""
    temporary = None
    if folder is not None:
        beside = cache_folder(data) / "corpora" / "folder"
        with cache_errors(beside):
            temporary = make_temporary_folder(beside)
    try:
        with hub_errors(source, local=folder is not None):
            cache_dir = None if temporary is None else str(temporary)
            dataset = _load(source, data, folder, str(source.split), cache_dir=cache_dir)
        yield dataset
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
