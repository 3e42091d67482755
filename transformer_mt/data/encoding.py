"""From a corpus of text to ids: tokenizers trained on it, its pairs encoded, both cached by content and settings."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray

from transformer_mt.config.manifest import check_manifest, write_manifest
from transformer_mt.config.run_folder import MANIFEST
from transformer_mt.config.schema import DataConfig, TokenizerConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.cache import Counts, cache_folder, cached, cached_table
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.tokenizers import Tokenizer, load_tokenizer, train_tokenizers

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION = 1  # raise it whenever the same text and settings would give other ids
CHUNK_PAIRS = 10_000
SRC = "src.json"
TGT = "tgt.json"


class IdColumn:
    """One side of an encoded corpus: row i is the ids of sentence i, read straight from the mapped file."""

    def __init__(self, column: "pa.ChunkedArray") -> None:
        self._starts = np.cumsum([0, *(len(chunk) for chunk in column.chunks)])
        self._offsets = [chunk.offsets.to_numpy() for chunk in column.chunks]
        self._values = [chunk.values.to_numpy() for chunk in column.chunks]
        self.lengths: NDArray[np.int32] = np.concatenate(
            [np.empty(0, np.int32), *(np.diff(offsets) for offsets in self._offsets)]
        ).astype(np.int32)

    def __len__(self) -> int:
        return len(self.lengths)

    def count(self, ids: list[int]) -> int:
        """How many of all the ids are among these."""
        return sum(int(np.isin(values, ids).sum()) for values in self._values)

    def gather(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids of these rows one after the other, and the length of each.

        Row by row, which takes as long in a table of a thousand chunks as in one of ten: rows of a batch come from all
        over a corpus, so work by chunk would grow with it.
        """
        lengths = self.lengths[rows].astype(np.int64)
        chunks = np.searchsorted(self._starts, rows, side="right") - 1
        places = (rows - self._starts[chunks]).tolist()
        pieces = [np.empty(0, np.int32)]
        for chunk, place, length in zip(chunks.tolist(), places, lengths.tolist(), strict=True):
            start = self._offsets[chunk][place]
            pieces.append(self._values[chunk][start : start + length])
        return np.concatenate(pieces), lengths

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        offsets, i = self._offsets[chunk], row - self._starts[chunk]
        return self._values[chunk][offsets[i] : offsets[i + 1]]


@dataclass(frozen=True)
class EncodedCorpus:
    """Both sides as ids, without special tokens, row by row as in the corpus; and how many of them are UNK."""

    src: IdColumn
    tgt: IdColumn
    num_unknown_src: int
    num_unknown_tgt: int

    def __len__(self) -> int:
        return len(self.src)


class CorpusPairs:
    """The pairs of a corpus, as often as one likes, a chunk in memory at a time."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for src, tgt in self.chunks():
            yield from zip(src, tgt, strict=True)

    def chunks(self) -> Iterator[tuple[list[str], list[str]]]:
        """Source texts and target texts of up to `CHUNK_PAIRS` pairs."""
        for batch in self.corpus.dataset.select_columns(["src", "tgt"]).iter(CHUNK_PAIRS):
            assert isinstance(batch, dict)
            yield batch["src"], batch["tgt"]


def corpus_tokenizers(corpus: Corpus, config: TokenizerConfig, data: DataConfig) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer trained on this corpus, or those that an earlier call trained on the same."""
    key = _key([FORMAT_VERSION, hf.__version__, corpus.fingerprint, config.model_dump()])

    def write(folder: Path) -> Counts:
        save_tokenizers(folder, *train_tokenizers(CorpusPairs(corpus), config))
        return {}

    def read(folder: Path) -> tuple[Tokenizer, Tokenizer]:
        return load_tokenizers(folder, config)

    return cached(cache_folder(data) / "tokenizers" / key, write, read)[0]


def save_tokenizers(folder: Path, src: Tokenizer, tgt: Tokenizer) -> None:
    """Write `src.json` and `tgt.json`, the same twice where the vocabulary is joint, and then their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    src.save(folder / SRC)
    tgt.save(folder / TGT)
    write_manifest(folder, [SRC, TGT])


def load_tokenizers(folder: Path, config: TokenizerConfig) -> tuple[Tokenizer, Tokenizer]:
    """What `save_tokenizers` wrote; one and the same object where the vocabulary is joint.

    Raises UserError where a file is missing or is not what was written. Runs of earlier versions have no manifest;
    of theirs only what cannot be read is seen.
    """
    if (folder / MANIFEST).exists():
        check_manifest(folder, [SRC, TGT], "Put back a copy of it, or train again.")
    src = load_tokenizer(folder / SRC, config)
    return src, src if config.joint else load_tokenizer(folder / TGT, config)


def encode_corpus(corpus: Corpus, src: Tokenizer, tgt: Tokenizer, data: DataConfig) -> EncodedCorpus:
    """Ids of every pair, mapped into memory. A second call with the same text and tokenizers is immediate."""
    identity = [[t.backend.to_str(), type(t).__name__, t.lowercase] for t in (src, tgt)]
    key = _key([FORMAT_VERSION, hf.__version__, corpus.fingerprint, identity])

    def write(path: Path) -> Counts:
        return _write_ids(path, corpus, src, tgt)

    dataset, counts = cached_table(cache_folder(data) / "encoded" / key, write)
    src_ids, tgt_ids = (IdColumn(dataset.data.table.column(name)) for name in ("src", "tgt"))
    return EncodedCorpus(src_ids, tgt_ids, counts["num_unknown_src"], counts["num_unknown_tgt"])


def _write_ids(path: Path, corpus: Corpus, src: Tokenizer, tgt: Tokenizer) -> Counts:
    import pyarrow as pa
    from tqdm import tqdm

    ids = pa.list_(pa.int32())
    schema = pa.schema([("src", ids), ("tgt", ids)])
    counts = {"num_rows": len(corpus), "num_unknown_src": 0, "num_unknown_tgt": 0}
    bar = tqdm(total=len(corpus), desc="Tokenizing", unit=" pairs", leave=False, disable=None)
    with bar, pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for chunk in CorpusPairs(corpus).chunks():
            columns = []
            for side, tokenizer, texts in zip(("src", "tgt"), (src, tgt), chunk, strict=True):
                values, lengths = tokenizer.encode_flat(texts)
                counts[f"num_unknown_{side}"] += int((values == UNK_ID).sum())
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
                columns.append(pa.ListArray.from_arrays(offsets, values, ids))
            writer.write_batch(pa.record_batch(columns, schema=schema))
            bar.update(len(chunk[0]))
    return counts


def _key(parts: list) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=20).hexdigest()
