"""Local folders in the layout of the hub. The library `datasets` says which files are a split; we read them ourselves.

Its own readers guess the types of CSV and JSON cells, anew for each piece of a file. So 007 becomes 7, a date becomes a
time, and a row with more cells than the header shifts its columns.
"""

import csv
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import yaml

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.sources.columns import column_choices
from transformer_mt.data.sources.files import source_path
from transformer_mt.data.sources.records import csv_pairs, json_pairs
from transformer_mt.data.sources.source import RawPair
from transformer_mt.errors import UserError

CARD, SECOND_CARD = "README.md", ".huggingface.yaml"  # may declare the splits, and how files are read
PATTERN = re.compile(r"[*?\[]|::|\$[\w{]")  # in a folder's path, `datasets` does not take this literally
KINDS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
# Keys of a card that change nothing here: they describe the folder, or the types that `datasets` would make of it.
INDIFFERENT = {"config_name", "data_files", "data_dir", "default", "description", "version", "features", "chunksize",
               "batch_size", "block_size", "columns", "usecols", "engine", "na_values", "keep_default_na",
               "na_filter", "true_values", "false_values"}  # fmt: skip
UTF8 = ("utf-8", "utf8", "utf-8-sig")

Span = tuple[str, int, int | None]  # a split, its first row, and the row behind its last; None: to the end


def local_folder(config: SourceConfig, data: DataConfig) -> "HubFolder | None":
    """The folder that `hub` names, as it is now; None where it is a name on the hub.

    Raises UserError for a folder that is not there, and for a name that `datasets` would take for something else.
    """
    name, folder = str(config.hub), source_path(str(config.hub), data)
    if folder.is_dir():
        if pattern := PATTERN.search(str(folder.absolute())):
            raise UserError(
                f"{folder.absolute()}: the library `datasets` takes {pattern[0]!r} in it for a pattern. Rename the "
                "folder, or name the files in it as csv, jsonl or parquet."
            )
        return HubFolder(folder, config, data)
    from datasets import packaged_modules  # its readers, which would read files of the working folder

    if name.startswith(("/", ".", "~")) or hasattr(packaged_modules, name):
        raise UserError(f"There is no folder {folder.absolute()}. Check hub; relative paths start at data.root.")
    if Path(name).exists():  # `datasets` would read it
        raise UserError(
            f"There is no folder {folder.absolute()}; relative paths start at data.root. "
            f"If you mean {Path(name).absolute()}, name it by this whole path."
        )
    return None


class HubFolder:
    """A folder, its files by split, and the settings at the top of its cards, without the words below them."""

    def __init__(self, path: Path, config: SourceConfig, data: DataConfig) -> None:
        import datasets

        self.path, self.config, self.data = path, config, data
        with quiet(), hub_errors(config, local=True):
            found = datasets.load_dataset_builder(str(path.absolute()), config.config).config
            second = path / SECOND_CARD
            head = _head_of_card(path / CARD)
            self.settings = [head, second.read_text(encoding="utf-8") if second.is_file() else ""]
        self.name = found.name
        self.splits = {str(split): [Path(name) for name in names] for split, names in (found.data_files or {}).items()}

    def files(self) -> list[Path]:
        """The files of the splits that the source names, sorted."""
        named = _named(str(self.config.split), list(self.splits)) or list(self.splits)
        return sorted({path for name in named for path in self.splits[name]})

    def pairs(self) -> Iterator[RawPair] | None:
        """The pairs of the split, numbered by row; None for kinds of files that only `datasets` reads."""
        paths = [path for paths in self.splits.values() for path in paths]
        if not all(map(_kind, paths)):
            return None
        card = self._card()
        options = self._options(card)
        if "configs" not in card:
            self._refuse_two_kinds(paths[0])

        def read(name: str) -> Iterator[RawPair]:
            return (pair for path in self.splits[name] for pair in self._read(path, options))

        with hub_errors(self.config, local=True):
            spans = split_spans(str(self.config.split), list(self.splits), lambda name: sum(1 for _ in read(name)))
        numbers = count(1)
        rows = (pair for name, first, end in spans for pair in islice(read(name), first, end))
        return (RawPair(pair.src, pair.tgt, next(numbers)) for pair in rows)

    def _read(self, path: Path, options: dict[str, Any]) -> Iterator[RawPair]:
        choices = column_choices(self.config, self.data)
        match _kind(path):
            case "csv":
                plain = {"delimiter": "\t" if ".tsv" in path.suffixes else ",", "blank_lines": False}
                return csv_pairs(path, choices, **{**plain, **options})
            case "json":
                return json_pairs(path, choices, strict=False, **options)
        from transformer_mt.data.sources.tables import parquet_pairs

        return parquet_pairs(path, choices, **options)

    def _card(self) -> dict[str, Any]:
        """The settings of both cards; `datasets` has read them, so they are YAML."""
        card: dict[str, Any] = {}
        for text in self.settings:
            found = yaml.safe_load(text)
            card |= found if isinstance(found, dict) else {}
        return card

    def _options(self, card: dict[str, Any]) -> dict[str, Any]:
        """What the card says about reading this configuration, for our readers; UserError for what they cannot do."""
        configs = card.get("configs") or []
        said = next((config for config in configs if str(config["config_name"]) == self.name), {})
        options = {}
        for key, value in said.items():
            match key, value:
                case (("sep" | "delimiter"), str()) if len(value) == 1 and value not in '"\r\n':
                    options["delimiter"] = value
                case (("names" | "column_names"), list()) if all(isinstance(column, str) for column in value):
                    options["names"] = value
                case "quoting", csv.QUOTE_NONE:
                    options["quoting"] = value
                case "field", str():
                    options["field"] = value
                case "encoding", str() if value.lower().replace("_", "-") in UTF8:
                    pass
                case "header", None if "names" in said or "column_names" in said:
                    pass
                case _ if key not in INDIFFERENT:
                    raise UserError(
                        f"{self.path}: {key}: {value!r} in its card is not for sentence pairs. Take it out of the "
                        "card; the files are to be UTF-8, and CSV, JSON or Parquet."
                    )
        return options

    def _refuse_two_kinds(self, taken: Path) -> None:
        """Raises UserError where `datasets` has silently chosen files of one kind and left out those of another."""
        for path in sorted(self.path.rglob("*")):
            if _kind(path) in (None, _kind(taken)) or not path.is_file() or not self._may_hold(path):
                continue
            if not any(part.startswith((".", "__")) for part in path.relative_to(self.path).parts):
                raise UserError(
                    f"{self.path}: {path.name} and {taken.name} are files of two kinds. Write all as one kind, name "
                    "them as sources of their own (csv, jsonl, parquet), or say in README.md which files are meant: "
                    f"configs: [{{config_name: default, data_files: '*{taken.suffix}'}}]."
                )

    def _may_hold(self, path: Path) -> bool:
        """Whether a file may hold pairs: statistics and settings beside the data are JSON too."""
        try:
            return _kind(path) != "json" or next(self._read(path, {}), None) is not None
        except UserError:
            return False


def _kind(path: Path) -> str | None:
    """The kind of a file, packed or not; None where we do not read it."""
    plain = path.stem if path.suffix in PACKED else path.name
    return KINDS.get(Path(plain).suffix.lower())


def _head_of_card(card: Path) -> str:
    """The settings in YAML at the top of a README.md, if it has any. Raises OSError and ValueError."""
    head = re.match(r"\s*---\s*\n(.*?)\n---", card.read_text(encoding="utf-8"), re.DOTALL) if card.is_file() else None
    return head[1] if head else ""


def _named(split: str, names: list[str]) -> list[str]:
    """Those of the splits that `split` names."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", split)]


def split_spans(split: str, names: list[str], size_of: Callable[[str], int | None]) -> list[Span]:
    """The splits that an expression such as `train` or `train[:10%]+test` asks for, and which of their rows.

    `size_of` gives the number of rows of a split that the expression names, or None where it is not known. Raises
    UserError where an unknown number is needed.
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
    unasked = {name: 0 for name in names if name not in sizes}  # named in the message about a split that does not exist
    asked = datasets.ReadInstruction.from_spec(split).to_absolute({**known, **unasked})
    ends = ((one, known[one.splitname] if one.to is None else one.to) for one in asked)
    return [(one.splitname, one.from_ or 0, None if end == sys.maxsize else end) for one, end in ends]


@contextmanager
def hub_errors(config: SourceConfig, local: bool) -> Iterator[None]:
    """Turns whatever `datasets` and its libraries raise into a UserError about the name, the files or the network."""
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
        asked = f"{config.hub} (config {config.config or 'not given'}, split {config.split})"
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
