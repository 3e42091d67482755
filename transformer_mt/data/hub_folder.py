"""Local folders in the layout of the hub. The library `datasets` says which files are a split; we read them ourselves.

Its own readers guess the types of CSV and JSON, each piece of a file anew: 007 becomes 7, a date a time, and a row with
a cell more than the header moves to the side.
"""

import csv
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import yaml

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.columns import RawPair, column_choices
from transformer_mt.data.files import source_path
from transformer_mt.data.records import csv_pairs, json_pairs
from transformer_mt.data.tables import parquet_pairs
from transformer_mt.errors import UserError

CARD, SECOND_CARD = "README.md", ".huggingface.yaml"  # may declare the splits, and how files are read
PATTERN = re.compile(r"[*?\[]|::|\$[\w{]")  # in the path of a folder, which `datasets` does not read as it stands
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
# Settings of the library's readers that change nothing here: what it reads at once, and what types it makes of it.
INDIFFERENT = {"name", "version", "data_dir", "data_files", "description", "features", "chunksize", "batch_size",
               "block_size", "columns", "usecols", "engine", "memory_map", "use_threads", "encoding_errors",
               "na_values", "keep_default_na", "na_filter", "true_values", "false_values", "thousands", "decimal",
               "date_format", "float_precision", "verbose"}  # fmt: skip

Reader = Callable[[Path], Iterator[RawPair]]
Span = tuple[str, int, int | None]  # of a split, from this row up to that, None: to its end


def local_folder(source: SourceConfig, data: DataConfig) -> Path | None:
    """The folder that `hub` names; None where it is a name on the hub.

    Raises UserError where it can be neither: a folder that is not there, or what `datasets` would take for another.
    """
    name, folder = str(source.hub), source_path(str(source.hub), data)
    if folder.is_dir():
        if pattern := PATTERN.search(str(folder.absolute())):
            raise UserError(
                f"{folder.absolute()}: the library `datasets` takes {pattern[0]!r} in it for a pattern. Rename the "
                "folder, or name the files in it as csv, jsonl or parquet."
            )
        return folder
    if name.startswith(("/", ".", "~")) or _is_loader(name):
        raise UserError(f"There is no folder {folder.absolute()}. Check hub; relative paths start at data.root.")
    if Path(name).exists():  # which `datasets` would take
        raise UserError(
            f"There is no folder {folder.absolute()}; relative paths start at data.root. "
            f"If you mean {Path(name).absolute()}, name it by this whole path."
        )
    return None


def local_hub_files(source: SourceConfig, data: DataConfig) -> list[Path]:
    """The files of the splits that a hub source names, where it is a local folder, sorted; empty where it is a name on
    the hub.
    """
    folder = local_folder(source, data)
    if folder is None:
        return []
    with quiet():
        splits = _files_of_splits(_config(source, folder))
    named = _named(str(source.split), list(splits)) or list(splits)
    return sorted({path for name in named for path in splits[name]})


def folder_settings(source: SourceConfig, data: DataConfig) -> list[str]:
    """What a local folder says of how its files are read: the heads of its cards, not what people write below them."""
    folder = local_folder(source, data)
    if folder is None:
        return []
    second = folder / SECOND_CARD
    with hub_errors(source, local=True):
        return [_head_of_card(folder) or "", second.read_text(encoding="utf-8") if second.is_file() else ""]


def folder_pairs(source: SourceConfig, data: DataConfig, folder: Path) -> Iterator[RawPair] | None:
    """The pairs of the split, by row; None where its files are of a kind that only `datasets` reads."""
    with quiet():
        config = _config(source, folder)
        reader = _reader(config, folder, column_choices(source, data))
        if reader is None:
            return None
        splits = _files_of_splits(config)
        _refuse_two_kinds(splits, folder, column_choices(source, data))
        with hub_errors(source, local=True):
            spans = split_spans(
                str(source.split), list(splits), lambda name: sum(1 for path in splits[name] for _ in reader(path))
            )
    return _rows(spans, splits, reader)


def _is_loader(name: str) -> bool:
    """Whether `datasets` has a reader of this name, which takes whatever it finds in the folder of the process."""
    from datasets import packaged_modules

    return hasattr(packaged_modules, name)


def _config(source: SourceConfig, folder: Path) -> Any:
    """How `datasets` would read this configuration of the folder."""
    import datasets

    with hub_errors(source, local=True):
        return datasets.load_dataset_builder(str(folder.absolute()), source.config).config


def _files_of_splits(config: Any) -> dict[str, list[Path]]:
    return {str(split): [Path(name) for name in names] for split, names in (config.data_files or {}).items()}


def _reader(config: Any, folder: Path, choices: list[tuple[str, str]]) -> Reader | None:
    readers: dict[str, Callable[[], Reader]] = {
        "CsvConfig": lambda: partial(
            csv_pairs,
            choices=choices,
            delimiter=config.sep,
            quoting=config.quoting,
            names=config.names,
            blank_lines=False,
        ),
        "JsonConfig": lambda: partial(json_pairs, choices=choices, field=config.field, strict=False),
        "ParquetConfig": lambda: partial(parquet_pairs, choices=choices),
    }
    kind = type(config).__name__
    if kind not in readers:
        return None
    plain = type(config)()
    for name in sorted({field.name for field in fields(config)} - INDIFFERENT):
        value = getattr(config, name)
        if value != getattr(plain, name) and not _is_followed(config, name, value):
            raise UserError(
                f"{folder}: {name}: {value!r} in its card is not for sentence pairs. Take it out of the card; "
                "the files are to be UTF-8, and CSV, JSON or Parquet."
            )
    return readers[kind]()


def _is_followed(config: Any, name: str, value: Any) -> bool:
    """Whether we read as this setting of a card says."""
    match name:
        case "sep" | "delimiter":
            return isinstance(value, str) and len(value) == 1 and value not in '"\r\n'
        case "quoting":
            return value == csv.QUOTE_NONE
        case "names" | "column_names":
            return isinstance(value, list) and all(isinstance(column, str) for column in value)
        case "header":  # of files without one the names are given
            return (value is None and config.names is not None) or (value == 0 and config.names is None)
        case "encoding":
            return isinstance(value, str) and value.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")
        case "field":
            return isinstance(value, str)
    return False


def _refuse_two_kinds(splits: dict[str, list[Path]], folder: Path, choices: list[tuple[str, str]]) -> None:
    """Raises UserError where `datasets` chose one kind of a split's files and left out the others, without a word."""
    if _declares_files(folder):
        return
    from datasets.data_files import DataFilesDict, get_data_patterns

    base = str(folder.resolve())
    for split, names in DataFilesDict.from_patterns(get_data_patterns(base), base_path=base).items():
        taken = splits.get(str(split), [])
        for path in map(Path, names):
            if path not in taken and any(suffix in SUFFIXES for suffix in path.suffixes) and _may_hold(path, choices):
                others = taken or [path for paths in splits.values() for path in paths]
                raise UserError(
                    f"{folder}, split {split}: {path.name} and {others[0].name} are files of two kinds. Write all as "
                    "one kind, name them as sources of their own (csv, jsonl, parquet), or say in README.md which "
                    f"files are meant: configs: [{{config_name: default, data_files: '*{others[0].suffix}'}}]."
                )


def _may_hold(path: Path, choices: list[tuple[str, str]]) -> bool:
    """Whether there may be pairs in a file: statistics and settings lie beside data as JSON too."""
    if ".json" not in path.suffixes:
        return True
    try:
        return next(json_pairs(path, choices), None) is not None
    except UserError:
        return False


def _declares_files(folder: Path) -> bool:
    """Whether a card says which files are which split."""
    if (folder / SECOND_CARD).exists():
        return True
    try:
        head = _head_of_card(folder)
        card = yaml.safe_load(head) if head else None
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(card, dict) and "configs" in card


def _head_of_card(folder: Path) -> str | None:
    """The settings in YAML at the top of its README.md; None where it has none. OSError, ValueError."""
    card = folder / CARD
    head = re.match(r"\s*---\s*\n(.*?)\n---", card.read_text(encoding="utf-8"), re.DOTALL) if card.is_file() else None
    return head[1] if head else None


def _named(split: str, names: list[str]) -> list[str]:
    """Those of the splits that `split` names."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", split)]


def split_spans(split: str, names: list[str], size_of: Callable[[str], int | None]) -> list[Span]:
    """What a split asks for: names of splits, and which of their rows. `train`, `train[:10%]+test` and so on.

    `size_of` is asked for those that the split names, and says None where it does not know. Raises UserError where that
    is needed.
    """
    if split in names:
        return [(split, 0, None)]
    if split == "all":
        return [(name, 0, None) for name in names]
    import datasets

    sizes = {name: size_of(name) for name in _named(split, names)}
    unknown = [name for name, size in sizes.items() if size is None]
    if any(re.search(rf"(?<!\w){re.escape(name)}\[[^\]]*(%|-\d)", split) for name in unknown):
        raise UserError(
            f"split: {split} is counted from the end or in percent, and how many rows there are is not known before "
            "all are read. Count rows from the start (train[1000:]), or set data.streaming: false."
        )
    known = {name: sys.maxsize if size is None else size for name, size in sizes.items()}
    unasked = {name: 0 for name in names if name not in sizes}  # named where one is asked for that there is not
    asked = datasets.ReadInstruction.from_spec(split).to_absolute({**known, **unasked})
    ends = ((one, known[one.splitname] if one.to is None else one.to) for one in asked)
    return [(one.splitname, one.from_ or 0, None if end == sys.maxsize else end) for one, end in ends]


def _rows(spans: list[Span], splits: dict[str, list[Path]], reader: Reader) -> Iterator[RawPair]:
    numbers = count(1)
    for name, first, end in spans:
        pairs = (pair for path in splits[name] for pair in reader(path))
        for pair in islice(pairs, first, end):
            yield RawPair(pair.src, pair.tgt, next(numbers))


@contextmanager
def hub_errors(source: SourceConfig, local: bool) -> Iterator[None]:
    """Whatever `datasets` and the libraries below it raise is about the name, the files or the network."""
    try:
        yield
    except UserError:
        raise
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
def quiet() -> Iterator[None]:
    """Keeps the bars and the chatter of `datasets` off the terminal, and puts its settings back."""
    import datasets

    logger = logging.getLogger("datasets")
    level, bars = logger.level, datasets.are_progress_bars_disabled()
    logger.setLevel(logging.CRITICAL)  # what fails is told by hub_errors, once
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
