"""The sources of a split joined into one memory-mapped table of sentence pairs, cached by content."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.longest_line import LONGEST_LINE, beyond_error, is_beyond
from transformer_mt.data.sources.kinds import sources_of, sources_of_pairs
from transformer_mt.data.sources.source import PairBlock, Source, changed_error, with_bar
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

TABLE = "data.arrow"
LOGGER = logging.getLogger(__name__)
FORMAT_VERSION = 2  # raise it whenever the same sources would give another table


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, raw, in the order of their sources.

    `dataset` has the columns src, tgt (text), line (1-based in its source) and source (index into `sources`).
    `num_read` counts all pairs of the sources, `num_blank` those dropped for a blank side, and `num_beyond` those
    dropped for a side that is longer than `LONGEST_LINE`. Two corpora have the same `fingerprint` exactly when their
    content and settings are the same.
    """

    dataset: "Dataset"
    num_read: int
    num_blank: int
    num_beyond: int
    fingerprint: str
    sources: list[Source]

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Source and target text of every pair, as often as one likes."""
        for batch in self.batches():
            yield from zip(*(batch.column(side).to_pylist() for side in (0, 1)), strict=True)

    def texts(self, side: int, once: bool = False) -> Iterator[list[str]]:
        """The texts of the sources (0) or of the targets (1), some thousand at a time. `once`: text in one language,
        which is both, comes with the targets alone.
        """
        left_out = [number for number, source in enumerate(self.sources) if once and side == 0 and source.config.mono]
        for batch in self.batches():
            texts = batch.column(side).to_pylist()
            if left_out:
                texts = [
                    text for text, of in zip(texts, batch.column(2).to_pylist(), strict=True) if of not in left_out
                ]
            yield texts

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Some thousand pairs at a time, in the columns src, tgt and source.

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
                        yield batch.select(["src", "tgt", "source"])
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
        return [source.description for source in self.sources]

    def _names(self) -> str:
        return ", ".join(self.descriptions)

    def where(self, row: int) -> str:
        """Where the pair `row` stands: `file.en / file.de, line 17`."""
        pair = self.dataset[row]
        return self.sources[pair["source"]].place(pair["line"])


def load_corpus(configs: list[SourceConfig], data: DataConfig, mono: bool = False) -> Corpus:
    """Reads the sources, or maps into memory what an earlier call made of the same content.

    A pair with a side that is blank (white space only) is dropped as a pair; so is one with a side that `is_beyond`,
    with a warning, or with `data.too_long: error` it is refused. Raises `UserError` for a source that cannot be read,
    for line counts that differ, and for a corpus without a single pair. Unless `mono`, text in one language is passed
    over beside pairs, and refused where there is nothing else.
    """
    sources = sources_of(configs, data) if mono else sources_of_pairs(configs, data)
    key = _corpus_key(sources)
    entry = cache_folder(data) / "corpora" / key

    def write(folder: Path) -> Counts:
        counts = _write_pairs(folder / TABLE, sources)
        if _corpus_key(sources) != key:
            raise changed_error(sources)
        return counts

    def read(folder: Path) -> "Dataset":
        from datasets import Dataset

        return Dataset.from_file(str(folder / TABLE))

    dataset, counts = cached(entry, write, read)
    num_beyond = counts.get("num_beyond", 0)
    if num_beyond:
        where = sources[counts["beyond_source"]].place(counts["beyond_line"])
        if data.too_long == "error":
            raise beyond_error(where)
        more = {1: "", 2: " So is 1 more."}.get(num_beyond, f" So are {num_beyond - 1:,} more.")
        LOGGER.warning("%s: a side is longer than %s bytes; the pair is left out.%s", where, f"{LONGEST_LINE:,}", more)
    return Corpus(dataset, counts["num_read"], counts["num_blank"], num_beyond, key, sources)


def _corpus_key(sources: list[Source]) -> str:
    """A hash of the content and of every setting that says how to read it, but not of paths or times."""
    return key_of([FORMAT_VERSION, [source.whole_key() for source in sources]])


def _write_pairs(path: Path, sources: list[Source]) -> Counts:
    """Writes the pairs that have two sides as an Arrow stream. Raises `UserError` where none is left.

    Returns the counts of each sort, and the place of the first pair that `is_beyond`.
    """
    import pyarrow as pa

    schema = pa.schema([("src", pa.string()), ("tgt", pa.string()), ("line", pa.int64()), ("source", pa.int32())])
    num_rows = 0
    counts: Counts = {"num_read": 0, "num_blank": 0}
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for index, source in enumerate(sources):
            before = counts["num_read"]
            for block in with_bar(source.tagged_blocks(), f"Reading {source.description}"):
                counts["num_read"] += len(block.lines)
                kept = _usable(block, index, counts)
                num_rows += len(kept.lines)
                if not kept.lines:
                    continue
                columns = [*kept, [index] * len(kept.lines)]
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
            if counts["num_read"] == before and len(sources) > 1:
                raise source.without_pairs()
    if not num_rows:
        num = counts["num_read"]
        names = ", ".join(source.description for source in sources)
        sides = "a blank side" if "num_beyond" not in counts else f"a side that is blank or over {LONGEST_LINE:,} bytes"
        all_pairs = "all " * (num > 1) + counted(num, "pair has", "pairs have")
        found = f"{all_pairs} {sides}" if num else "there is not a single line"
        raise UserError(f"The corpus {names} is empty: {found}. Check that these are the files you mean.")
    return counts


def _usable(block: PairBlock, source: int, counts: Counts) -> PairBlock:
    """The pairs of which no side is blank or `is_beyond`; the others are counted."""
    sides = block.src, block.tgt
    if all(all(map(str.strip, side)) and not any(map(is_beyond, side)) for side in sides):
        return block
    kept = []
    for index, pair in enumerate(zip(*sides, strict=True)):
        if not all(map(str.strip, pair)):
            counts["num_blank"] += 1
        elif not any(map(is_beyond, pair)):
            kept.append(index)
        elif "num_beyond" in counts:
            counts["num_beyond"] += 1
        else:
            counts |= {"num_beyond": 1, "beyond_source": source, "beyond_line": block.lines[index]}
    return PairBlock([block.src[i] for i in kept], [block.tgt[i] for i in kept], [block.lines[i] for i in kept])
