"""Data sets of the hub, and local folders in that layout, as sources."""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from transformer_mt.data.cache import cache_errors, cache_folder
from transformer_mt.data.sources.columns import column_choices
from transformer_mt.data.sources.files import source_path
from transformer_mt.data.sources.hub_folder import folder_splits, hub_errors, local_folder, named_splits, quiet
from transformer_mt.data.sources.source import RawPair, Source
from transformer_mt.errors import UserError
from transformer_mt.storage.files import TEMPORARY

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

Span = tuple[str, int, int | None]  # a split, its first row, and the row behind its last; None: to the end


class Hub(Source):
    """`{hub: NAME, config: CONFIG, split: SPLIT}`. NAME is a data set of the hub, or a folder of Parquet files."""

    @property
    def description(self) -> str:
        return f"{self.config.hub} ({', '.join(filter(None, [self.config.config, self.config.split]))})"

    def files(self) -> list[Path]:
        return [path for paths in self._splits().values() for path in paths]

    def key(self) -> list[object]:
        splits = self._splits()
        if not splits:
            return ["pairs", _pairs_digest(self.pairs())]
        root = source_path(str(self.config.hub), self.data)
        names = {split: [os.path.relpath(path, root) for path in paths] for split, paths in splits.items()}
        choices = column_choices(self.config, self.data)
        return ["hub", choices, self.config.config, self.config.split, names, self.digests()]

    def pairs(self) -> Iterator[RawPair]:
        return self._pairs(self._tables)

    def streamed(self) -> Iterator[RawPair]:
        """The same pairs, fetched while they are read. Nothing is kept."""
        return self._pairs(self._streamed_tables)

    def _splits(self) -> dict[str, list[Path]]:
        """The files of a local folder by split; none for a data set of the hub."""
        folder = local_folder(self.config, self.data)
        return {} if folder is None else folder_splits(folder, self.config)

    def _pairs(self, read: Callable[[Path | None], Generator["pa.Table", None, None]]) -> Iterator[RawPair]:
        """The pairs of the tables that `read` gives."""
        from transformer_mt.data.sources.tables import batch_pairs, choose_of_schema

        folder = local_folder(self.config, self.data)
        if folder is not None:
            folder_splits(folder, self.config)  # refuses files of which `datasets` guesses what is text
        place = f"data set {self.config.hub}, split {self.config.split}"
        with closing(read(folder)) as tables:
            if (first := next(tables, None)) is not None:
                chosen = choose_of_schema(first.schema, column_choices(self.config, self.data), place)
                yield from batch_pairs(chain([first], tables), chosen, place)

    def _tables(self, folder: Path | None) -> Generator["pa.Table", None, None]:
        """The split with all its columns, in tables of some rows."""
        from transformer_mt.data.sources.tables import BATCH_ROWS

        with quiet(), self._loaded(folder) as dataset:
            batches: Any = dataset.with_format("arrow").iter(batch_size=BATCH_ROWS)
            yield from batches

    def _streamed_tables(self, folder: Path | None) -> Generator["pa.Table", None, None]:
        """The same, fetched while they are read."""
        from transformer_mt.data.sources.tables import BATCH_ROWS

        with quiet(), hub_errors(self.config, local=folder is not None):
            parts = self._streamed_parts(folder)
            tables = chain.from_iterable(part.with_format("arrow").iter(batch_size=BATCH_ROWS) for part in parts)
        while True:
            with quiet(), hub_errors(self.config, local=folder is not None):  # never around a yield
                table = next(tables, None)
            if table is None:
                return
            yield table

    def _streamed_parts(self, folder: Path | None) -> list[Any]:
        """The parts that the split names, in order. `datasets` by itself streams only whole splits."""
        split = str(self.config.split)
        if re.fullmatch(r"[\w.-]+", split) and split != "all":
            return [self._load(folder, split, streaming=True)]
        splits = self._load(folder, None, streaming=True)

        def size_of(name: str) -> int | None:
            told = splits[name].info.splits or {}
            return told[name].num_examples if name in told else None

        parts = []
        for name, first, end in split_spans(split, list(splits), size_of):
            rest = splits[name].skip(first)
            parts.append(rest if end is None else rest.take(end - first))
        return parts

    def _load(self, folder: Path | None, split: str | None, **options: Any) -> Any:
        """The split as `datasets` loads it; None: all splits by name.

        In CSV files the words NA, null and nan stay words, 007 and True stay text, and a row with one cell too many
        does not shift its columns.
        """
        import datasets

        name = str(folder.absolute() if folder else self.config.hub)
        if hasattr(datasets.load_dataset_builder(name, self.config.config).config, "keep_default_na"):
            columns = {str(column) for choice in column_choices(self.config, self.data) for column in choice}
            options |= {"keep_default_na": False, "converters": dict.fromkeys(columns, str), "index_col": False}
        return datasets.load_dataset(name, self.config.config, split=split, **options)

    @contextmanager
    def _loaded(self, folder: Path | None) -> Iterator["Dataset"]:
        """The split, mapped into memory.

        The copy that `datasets` makes of a local folder is deleted afterwards. `corpus.py` keeps one of its own, whose
        key depends on the bytes; that of `datasets` depends on the time of the last change.
        """
        with ExitStack() as stack:
            copy = None
            if folder is not None:
                corpora = cache_folder(self.data) / "corpora"
                with cache_errors(corpora / "folder"):
                    corpora.mkdir(parents=True, exist_ok=True)
                    made = TemporaryDirectory(prefix=TEMPORARY, dir=corpora, ignore_cleanup_errors=True)
                    copy = stack.enter_context(made)
            with hub_errors(self.config, local=folder is not None):
                dataset = self._load(folder, str(self.config.split), cache_dir=copy)
            yield dataset


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

    sizes = {name: size_of(name) for name in named_splits(split, names)}
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


def _pairs_digest(pairs: Iterator[RawPair]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for pair in pairs:
        for side in (pair.src.encode(), pair.tgt.encode()):
            digest.update(len(side).to_bytes(8, "little") + side)
    return digest.hexdigest()
