"""A stretch of a stream of pairs in memory: read in order, tokenized as it comes, and checked like a whole corpus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.config.schema import DataConfig, RunConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.batching import Batch, Rows, batch_of_ids
from transformer_mt.data.columns import RawPair
from transformer_mt.data.encoding import too_long
from transformer_mt.data.ids import IdColumn
from transformer_mt.data.sources import place, read_pairs, without_pairs
from transformer_mt.data.tokenizers import Tokenizer

CHUNK_PAIRS = 1000
NUM_SHOWN = 3  # pairs, in the report on the data


@dataclass(frozen=True)
class Window:
    """The pairs number `first` to `first + num_read - 1` of a stream, from 0, of which those that are blank or too long
    are left out.

    `sources` and `lines` say where each pair stands; `digest` is a hash of all texts that were read, and `shown` are a
    few of them.
    """

    first: int
    num_read: int
    num_blank: int
    num_too_long: int
    src: IdColumn
    tgt: IdColumn
    sources: NDArray[np.int32]
    lines: NDArray[np.int64]
    digest: str
    shown: list[tuple[str, str]]

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """Lengths of x + EOS, a number a row."""
        return self.src.lengths + np.int32(1)

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """Lengths of y + EOS, a number a row."""
        return self.tgt.lengths + np.int32(1)

    def batch(self, rows: Rows) -> Batch:
        """The pairs of these rows, padded."""
        return batch_of_ids(self.src.gather(rows), self.tgt.gather(rows))

    def unknown_shares(self) -> tuple[float, float]:
        """UNK among the tokens of the source and of the target."""
        src, tgt = (side.count([UNK_ID]) / max(1, len(side.ids)) for side in (self.src, self.tgt))
        return src, tgt


class Head:
    """The texts of the first pairs of the training sources, as often as one likes; blank ones are left out."""

    def __init__(self, data: DataConfig) -> None:
        self.data = data

    def texts(self, side: int) -> Iterator[list[str]]:
        """The texts of the sources (0) or of the targets (1), some at a time."""
        pairs = islice(stream_pairs(self.data), self.data.streaming_tokenizer_pairs)
        while chunk := list(islice(pairs, CHUNK_PAIRS)):
            kept = [(pair.src, pair.tgt)[side] for _, pair in chunk if pair.src.strip() and pair.tgt.strip()]
            if kept:
                yield kept


def stream_pairs(data: DataConfig) -> Iterator[tuple[int, RawPair]]:
    """Every pair of the training sources in their order, blank ones included, with the number of its source.

    Nothing of it is kept on the disk. Raises UserError for whatever cannot be read, where it is come to.
    """
    for number, source in enumerate(data.train):
        if source.kind == "hub":
            from transformer_mt.data.hub import hub_stream

            pairs = hub_stream(source, data)
        else:
            pairs = read_pairs(source, data)
        is_empty = True
        for pair in pairs:
            is_empty = False
            yield number, pair
        if is_empty and len(data.train) > 1:
            raise without_pairs(source)


class _Filling:
    """What a window is made of, chunk by chunk."""

    def __init__(self) -> None:
        self.num_read = self.num_blank = self.num_too_long = 0
        self.chunks: tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]] = ([], [])
        self.lengths: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
        self.sources: list[int] = []
        self.lines: list[int] = []
        self.digest = xxhash.xxh3_128()
        self.shown: list[tuple[str, str]] = []

    def hash(self, pair: RawPair) -> None:
        for text in (pair.src, pair.tgt):
            encoded = text.encode()
            self.digest.update(len(encoded).to_bytes(8, "little"))
            self.digest.update(encoded)

    def side(self, number: int) -> IdColumn:
        ids = np.concatenate([np.empty(0, np.int32), *self.chunks[number]])
        lengths = np.concatenate([np.empty(0, np.int64), *self.lengths[number]]).astype(np.int32)
        return IdColumn(ids, lengths)


class WindowReader:
    """Reads windows of `data.shuffle_window` pairs, best in their order: a place further back is read from the start.

    `stopped` is asked every so many pairs, and where it is true a window is given up: None is returned.
    """

    def __init__(self, config: RunConfig, src: Tokenizer, tgt: Tokenizer, stopped: Callable[[], bool]) -> None:
        self.data = config.data
        self.max_len = config.model.max_len
        self.tokenizers = (src, tgt)
        self.size = config.data.shuffle_window
        self.stopped = stopped
        self._pairs: Iterator[tuple[int, RawPair]] = iter(())
        self._place: int | None = None

    def read(self, number: int) -> Window | None:
        """The window of this number; one without a pair read where the stream is over before it.

        Raises UserError for what cannot be read, and for a pair that is too long where that is to be an error.
        """
        self._go_to(number * self.size)
        filling = _Filling()
        window = islice(self._pairs, self.size)
        while chunk := list(islice(window, CHUNK_PAIRS)):
            self._add(filling, chunk)
            if self.stopped():
                self._place = None
                return None
        self._place = number * self.size + filling.num_read
        return Window(
            number * self.size,
            filling.num_read,
            filling.num_blank,
            filling.num_too_long,
            filling.side(0),
            filling.side(1),
            np.array(filling.sources, np.int32),
            np.array(filling.lines, np.int64),
            filling.digest.hexdigest(),
            filling.shown,
        )

    def where(self, source: int, line: int) -> str:
        """Where a pair stands: `file.en / file.de, line 17`."""
        return place(self.data.train[source], line)

    def _go_to(self, place: int) -> None:
        """Have the pair number `place` be the next one."""
        if self._place is None or self._place > place:
            self._pairs, self._place = stream_pairs(self.data), 0
        while self._place < place:
            skipped = sum(1 for _ in islice(self._pairs, min(place - self._place, CHUNK_PAIRS)))
            self._place += skipped
            if skipped == 0 or self.stopped():
                return

    def _add(self, filling: _Filling, chunk: list[tuple[int, RawPair]]) -> None:
        for _, pair in chunk:
            filling.hash(pair)
        kept = [(source, pair) for source, pair in chunk if pair.src.strip() and pair.tgt.strip()]
        filling.num_read += len(chunk)
        filling.num_blank += len(chunk) - len(kept)
        texts = [pair.src for _, pair in kept], [pair.tgt for _, pair in kept]
        encoded = [t.encode_flat(side) for t, side in zip(self.tokenizers, texts, strict=True)]
        (_, num_src), (_, num_tgt) = encoded
        fits = (num_src < self.max_len) & (num_tgt < self.max_len)
        if self.data.too_long == "error" and not fits.all():
            i = int(np.argmin(fits))
            raise too_long(self.where(kept[i][0], kept[i][1].line), num_src[i], num_tgt[i], self.max_len)
        filling.num_too_long += int((~fits).sum())
        for i, (source, pair) in enumerate(kept):
            if fits[i]:
                filling.sources.append(source)
                filling.lines.append(pair.line)
                if len(filling.shown) < NUM_SHOWN:
                    filling.shown.append((pair.src, pair.tgt))
        for number, (ids, lengths) in enumerate(encoded):
            filling.lengths[number].append(lengths[fits])
            filling.chunks[number].append(ids[np.repeat(fits, lengths)])
