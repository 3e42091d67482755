"""A window: a stretch of a stream of pairs in memory, read in order, tokenized, and checked like a whole corpus."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.forms import AS_PAIRS, Form
from transformer_mt.data.encoding import too_long
from transformer_mt.data.id_file import IdColumn
from transformer_mt.data.left_out import LeftOut, positions_for_most
from transformer_mt.data.longest_line import beyond_error, is_beyond
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.data.sources.source import RawPair, Source
from transformer_mt.data.tokenizers import Tokenizer

CHUNK_PAIRS = 1000
_NO_IDS = np.empty(0, np.int32)
NUM_SHOWN = 3  # pairs, in the report on the data


@dataclass(frozen=True)
class Window:
    """The pairs number `first` to `first + num_read - 1` of a stream, counted from 0, without those that are blank or
    too long. `model.max_len: enough` would hold 99 % of them.

    `sources` and `lines` say where each pair stands. `digest` is a hash of all texts that were read. `shown` holds a
    few of the pairs. `form` is that of their batches. `num_cut` lines were cut for their noise.
    """

    first: int
    num_read: int
    num_blank: int
    num_too_long: int
    enough: int
    src: IdColumn
    tgt: IdColumn
    sources: NDArray[np.int32]
    lines: NDArray[np.int64]
    digest: str
    shown: list[tuple[str, str]]
    form: Form = AS_PAIRS
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """Lengths of x + EOS, a number a row."""
        return self.src.lengths + np.int32(1)

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """How many target tokens each row has: the length of y + EOS, or of the tokens that are told in place."""
        return self.form.num_targets(self.tgt)

    @property
    def left_out(self) -> LeftOut:
        """The pairs that the model has no positions for, among those with two sides."""
        return LeftOut(self.num_too_long, self.num_read - self.num_blank, self.enough)

    def batch(self, rows: Rows) -> Batch:
        """The pairs of these rows, padded."""
        return self.form.batch_of(self.src.gather(rows), self.tgt.gather(rows))

    def unknown_shares(self) -> tuple[float, float]:
        """UNK among the tokens of the source and of the target."""
        src, tgt = (side.count([UNK_ID]) / max(1, len(side.ids)) for side in (self.src, self.tgt))
        return src, tgt


class Head:
    """The first pairs of the sources, to be read as often as one likes, without those that are blank or `is_beyond`."""

    def __init__(self, sources: list[Source], num_pairs: int) -> None:
        self.sources = sources
        self.num_pairs = num_pairs

    def texts(self, side: int, once: bool = False) -> Iterator[list[str]]:
        """The texts of the sources (0) or of the targets (1), some at a time. `once`: see `Corpus.texts`."""
        left_out = {number for number, source in enumerate(self.sources) if once and side == 0 and source.config.mono}
        pairs = islice(stream_pairs(self.sources), self.num_pairs)
        while chunk := list(islice(pairs, CHUNK_PAIRS)):
            kept = [(pair.src, pair.tgt)[side] for of, pair in chunk if of not in left_out and _has_text(pair)]
            if kept:
                yield kept


def stream_pairs(sources: list[Source]) -> Iterator[tuple[int, RawPair]]:
    """Every pair of the sources in their order, blank ones included, with the number of its source.

    Nothing is kept on the disk. Raises UserError at the first pair that cannot be read.
    """
    for number, source in enumerate(sources):
        is_empty = True
        for pair in source.tagged_stream():
            is_empty = False
            yield number, pair
        if is_empty and len(sources) > 1:
            raise source.without_pairs()


def _has_text(pair: RawPair) -> bool:
    """Whether a tokenizer may learn from the pair."""
    return all(text.strip() and not is_beyond(text) for text in (pair.src, pair.tgt))


class _Filling:
    """A window in the making, which grows chunk by chunk."""

    def __init__(self, seed: int) -> None:
        self.num_read = self.num_blank = self.num_too_long = 0
        self.chunks: tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]] = ([], [])
        self.lengths: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
        # Of pairs that are too long, too.
        self.all_lengths: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
        self.sources: list[int] = []
        self.lines: list[int] = []
        self.digest = xxhash.xxh3_128()
        self.shown: list[tuple[str, str]] = []
        self._dice = random.Random(seed)

    def show(self, pair: tuple[str, str]) -> None:
        """Perhaps make the pair one of those to be shown. All pairs of a window are equally likely, by the seed."""
        if len(self.shown) < NUM_SHOWN:
            self.shown.append(pair)
        elif (place := int(self._dice.random() * len(self.lines))) < NUM_SHOWN:
            self.shown[place] = pair

    def hash(self, pair: RawPair) -> None:
        for text in (pair.src, pair.tgt):
            encoded = text.encode()
            self.digest.update(len(encoded).to_bytes(8, "little"))
            self.digest.update(encoded)

    def side(self, number: int) -> IdColumn:
        chunks = self.chunks[number]
        ids = np.concatenate([np.empty((0, *chunks[0].shape[1:]), chunks[0].dtype), *chunks]) if chunks else _NO_IDS
        lengths = np.concatenate([np.empty(0, np.int64), *self.lengths[number]]).astype(np.int32)
        return IdColumn(ids, lengths)


class WindowReader:
    """Reads windows of `data.shuffle_window` pairs, best in their order: to go back, it reads again from the start.

    It asks `stopped` after every chunk of pairs. Where that is true, it gives the window up and returns None.
    """

    def __init__(self, config: RunConfig, src: Tokenizer, tgt: Tokenizer, stopped: Callable[[], bool]) -> None:
        self.sources = sources_of(config.data.train, config.data)
        self.too_long = config.data.too_long
        self.max_len = config.model.max_len
        self.seed = config.seed
        self.tokenizers = (src, tgt)
        self.size = config.data.shuffle_window
        self.stopped = stopped
        self._pairs: Iterator[tuple[int, RawPair]] = iter(())
        self._place: int | None = None

    def read(self, number: int) -> Window | None:
        """The window of this number. Where the stream ends before it, the window has read no pair.

        Raises UserError for what cannot be read, and with `data.too_long: error` for a pair that is too long.
        """
        self._go_to(number * self.size)
        filling = _Filling(self.seed)
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
            positions_for_most(*(np.concatenate([[0][:0], *side]) for side in filling.all_lengths)),
            filling.side(0),
            filling.side(1),
            np.array(filling.sources, np.int32),
            np.array(filling.lines, np.int64),
            filling.digest.hexdigest(),
            filling.shown,
        )

    def where(self, source: int, line: int) -> str:
        """Where a pair stands: `file.en / file.de, line 17`."""
        return self.sources[source].place(line)

    def _go_to(self, place: int) -> None:
        """Have the pair number `place` be the next one."""
        if self._place is None or self._place > place:
            self._pairs, self._place = stream_pairs(self.sources), 0
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
        beyond = [is_beyond(pair.src) or is_beyond(pair.tgt) for _, pair in kept]
        if any(beyond):
            if self.too_long == "error":
                source, pair = kept[beyond.index(True)]
                raise beyond_error(self.where(source, pair.line))
            filling.num_too_long += sum(beyond)
            kept = [one for one, left_out in zip(kept, beyond, strict=True) if not left_out]
        texts = [pair.src for _, pair in kept], [pair.tgt for _, pair in kept]
        encoded = [t.encode_flat(side) for t, side in zip(self.tokenizers, texts, strict=True)]
        (_, num_src), (_, num_tgt) = encoded
        fits = (num_src < self.max_len) & (num_tgt < self.max_len)
        if self.too_long == "error" and not fits.all():
            i = int(np.argmin(fits))
            raise too_long(self.where(kept[i][0], kept[i][1].line), num_src[i], num_tgt[i], self.max_len)
        filling.num_too_long += int((~fits).sum())
        for i, (source, pair) in enumerate(kept):
            if fits[i]:
                filling.sources.append(source)
                filling.lines.append(pair.line)
                filling.show((pair.src, pair.tgt))
        for number, (ids, lengths) in enumerate(encoded):
            filling.lengths[number].append(lengths[fits])
            filling.all_lengths[number].append(lengths)
            filling.chunks[number].append(ids[np.repeat(fits, lengths)])
