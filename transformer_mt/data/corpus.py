"""The sources of a split joined into one memory-mapped table of sentence pairs, cached by content."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.cache import Counts, cache_folder, cached
from transformer_mt.data.columns import PairBlock, RawPair, column_choices, column_numbers
from transformer_mt.data.files import open_bytes, source_path
from transformer_mt.data.sources import (
    describe,
    place,
    read_blocks,
    read_pairs,
    source_files,
    source_settings,
    without_pairs,
)
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

TABLE = "data.arrow"
FORMAT_VERSION = 2  # raise it whenever the same sources would give another table


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, raw, in the order of their sources.

    `dataset` has the columns src, tgt (text), line (1-based in its source) and source (index into `sources`).
    `num_read` counts the pairs that were there, `num_blank` those of them that were dropped for a blank side.
    `fingerprint` is equal for two corpora exactly when content and settings are.
    """

    dataset: "Dataset"
    num_read: int
    num_blank: int
    fingerprint: str
    sources: list[SourceConfig]

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Source and target text of every pair, as often as one likes."""
        for batch in self.batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def texts(self, side: int) -> Iterator[list[str]]:
        """The texts of the sources (0) or of the targets (1), some thousand at a time."""
        for batch in self.batches():
            yield batch.column(side).to_pylist()

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Some thousand pairs at a time, in the columns src and tgt.

        The file is read, not the mapped table: all pages of that would stay in memory. Raises UserError where the file
        is no longer the one that was mapped.
        """
        import pyarrow as pa

        num_rows = 0
        try:
            for cached_file in self.dataset.cache_files:
                with pa.OSFile(cached_file["filename"]) as file, pa.ipc.open_stream(file) as table:
                    for batch in table:
                        num_rows += len(batch)
                        yield batch.select(["src", "tgt"])
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"The cached pairs of {self._names()} cannot be read: {error} Start again.") from error
        if num_rows != len(self):
            raise UserError(
                f"Of the {len(self):,} cached pairs of {self._names()} only {num_rows:,} are left. Start again, and "
                "let no other program write to the cache."
            )

    @property
    def descriptions(self) -> list[str]:
        """The sources as the configuration names them."""
        return [describe(source) for source in self.sources]

    def _names(self) -> str:
        return ", ".join(self.descriptions)

    def where(self, row: int) -> str:
        """Where the pair `row` stands: `file.en / file.de, line 17`."""
        pair = self.dataset[row]
        return place(self.sources[pair["source"]], pair["line"])


def load_corpus(sources: list[SourceConfig], data: DataConfig) -> Corpus:
    """Reads the sources, or maps into memory what an earlier call made of the same content.

    A pair with a side that is blank (white space only) is dropped as a pair. Raises `UserError` for a source that
    cannot be read, for line counts that differ, and for a corpus without a single pair.
    """
    key = _corpus_key(sources, data)
    entry = cache_folder(data) / "corpora" / key

    def write(folder: Path) -> Counts:
        counts = _write_pairs(folder / TABLE, sources, data)
        if _corpus_key(sources, data) != key:
            names = ", ".join(describe(source) for source in sources)
            raise UserError(f"{names} changed while being read. Wait until nothing writes to it, and start again.")
        return counts

    def read(folder: Path) -> "Dataset":
        from datasets import Dataset

        return Dataset.from_file(str(folder / TABLE))

    dataset, counts = cached(entry, write, read)
    return Corpus(dataset, counts["num_read"], counts["num_blank"], key, sources)


def _corpus_key(sources: list[SourceConfig], data: DataConfig) -> str:
    """A hash of the content and of every setting that says how to read it; not of paths or times."""
    parts = [FORMAT_VERSION, [_source_key(source, data) for source in sources]]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=20).hexdigest()


def _source_key(source: SourceConfig, data: DataConfig) -> list[object]:
    files = source_files(source, data)
    digests = [_file_digest(path) for path in files]
    if source.kind == "text":
        return ["text", digests]
    if source.kind == "tsv":
        return ["tsv", column_numbers(source, data), digests]
    if not files:
        return ["pairs", _pairs_digest(read_pairs(source, data))]
    if source.kind == "builtin":
        return ["builtin", source.builtin, source.split, digests]
    choices = column_choices(source, data)
    if source.kind == "hub":  # the names say which split a file belongs to
        names = [os.path.relpath(path, source_path(str(source.hub), data)) for path in files]
        return ["hub", choices, source.config, source.split, names, source_settings(source, data), digests]
    return [source.kind, choices, digests]


def _file_digest(path: Path) -> str:
    with open_bytes(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def _pairs_digest(pairs: Iterator[RawPair]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for pair in pairs:
        for side in (pair.src.encode(), pair.tgt.encode()):
            digest.update(len(side).to_bytes(8, "little") + side)
    return digest.hexdigest()


def _write_pairs(path: Path, sources: list[SourceConfig], data: DataConfig) -> Counts:
    """Writes the pairs without a blank side as an Arrow stream. Raises `UserError` where none is left."""
    import pyarrow as pa

    schema = pa.schema([("src", pa.string()), ("tgt", pa.string()), ("line", pa.int64()), ("source", pa.int32())])
    num_read = num_rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for index, source in enumerate(sources):
            before = num_read
            for block in _with_bar(source, data):
                kept = _without_blanks(block)
                num_read += len(block.lines)
                num_rows += len(kept.lines)
                if not kept.lines:
                    continue
                columns = [*kept, [index] * len(kept.lines)]
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
            if num_read == before and len(sources) > 1:
                raise without_pairs(source)
    if not num_rows:
        names = ", ".join(describe(source) for source in sources)
        found = f"all {num_read:,} pairs have a blank side" if num_read else "there is not a single line"
        raise UserError(f"The corpus {names} is empty: {found}. Check that these are the files you mean.")
    return {"num_read": num_read, "num_blank": num_read - num_rows}


def _without_blanks(block: PairBlock) -> PairBlock:
    if all(map(str.strip, block.src)) and all(map(str.strip, block.tgt)):
        return block
    kept = [i for i, pair in enumerate(zip(block.src, block.tgt, strict=True)) if all(map(str.strip, pair))]
    return PairBlock([block.src[i] for i in kept], [block.tgt[i] for i in kept], [block.lines[i] for i in kept])


def _with_bar(source: SourceConfig, data: DataConfig) -> Iterator[PairBlock]:
    """The pairs, with a progress bar where standard error is a terminal."""
    from tqdm import tqdm

    with tqdm(desc=f"Reading {describe(source)}", unit=" pairs", leave=False, disable=None) as bar:
        for block in read_blocks(source, data):
            yield block
            bar.update(len(block.lines))
