"""A training split whose pairs are others in each epoch: in other pieces (BPE-dropout), with other words hidden
(`data.noise`), or in both directions at first.

What a pair is in an epoch is a function of (seed, epoch, line). So it is segmented twice, once for the lengths that an
epoch is planned by and once for its batch, and nothing is kept in between but lengths.
"""

import threading

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Batch, Rows, plan_batches
from transformer_mt.data.batches.forms import AS_PAIRS
from transformer_mt.data.batches.plan import EPOCH_BITS, LengthsByPart, TrainingSplit, WholePlan
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.id_file import IdColumn
from transformer_mt.data.noise.bpe_dropout import BPEDropout, line_seeds
from transformer_mt.data.noise.noise import Noise, mono_rows, tag_rows
from transformer_mt.data.preparation import Split, TrainingData
from transformer_mt.data.tokenizers import BPETokenizer
from transformer_mt.plurals import counted

SEGMENTED_AT_ONCE = 2**15  # pairs: some megabytes
SIDES = ("src", "tgt")
_DROPOUT = 0xD209  # tells these random numbers from others of the same seed and epoch

Lengths = tuple[NDArray[np.int32], NDArray[np.int32]]  # of x + EOS and of targets, by place in the epoch


def split_by_epochs(data: TrainingData, config: RunConfig) -> TrainingSplit:
    """The training split as the config has it change with the epochs, or as it is where it does not change."""
    tokenizer, noise = config.tokenizer, Noise.of(config, data.tgt_tokenizer)
    if isinstance(data.train, Stream):  # the config refuses a stream with all but noise
        if noise is not None:
            data.train.take_noise(noise.of_window)
        return data.train
    if tokenizer.bpe_dropout == 0.0 and config.data.both_directions_epochs == 0 and noise is None:
        return data.train
    dropouts: list[BPEDropout | None] = [None, None]
    if tokenizer.bpe_dropout > 0.0:
        for number, (side, ours) in enumerate(zip(SIDES, (data.src_tokenizer, data.tgt_tokenizer), strict=True)):
            if tokenizer.bpe_dropout_sides in ("both", side):
                assert isinstance(ours, BPETokenizer), "the config refuses another kind"
                shared = dropouts[0] if data.src_tokenizer is data.tgt_tokenizer else None
                dropouts[number] = shared or BPEDropout(ours, tokenizer.bpe_dropout)
    both_epochs = config.data.both_directions_epochs
    return EpochSplit(data.train, dropouts, both_epochs, config.model.max_len, config.seed, noise)


def validated_split(data: TrainingData, config: RunConfig) -> tuple[Split, Rows]:
    """The validation split, with the noise of the config, and the rows of it that can be translated: those that have
    a translation to be compared with.
    """
    noise, split = Noise.of(config, data.tgt_tokenizer), data.validation
    if noise is None:
        return split, np.arange(len(split))
    return noise.of_validation(split), np.flatnonzero(~mono_rows(split.corpus)[split.rows])


class EpochSplit:
    """See `TrainingSplit`. In the first `both_epochs` epochs each pair comes twice, the second time from target to
    source: those places follow all others. `dropouts` are those of source and target text.

    `noise` hides words of text in one language. A pair that dropout would make longer than `max_len` keeps its usual
    pieces in that epoch; a line that noise would make longer is cut. Threads may share this.
    """

    def __init__(
        self,
        split: Split,
        dropouts: list[BPEDropout | None],
        both_epochs: int,
        max_len: int,
        seed: int,
        noise: Noise | None = None,
    ) -> None:
        self.split = split
        self.dropouts = dropouts
        self.both_epochs = both_epochs
        self.max_len = max_len
        self.seed = seed
        self.noise = noise
        self.form = AS_PAIRS if noise is None else noise.form
        self.is_mono = np.empty(0, bool) if noise is None else mono_rows(split.corpus)
        self.num_tags = np.empty(0, np.int32) if noise is None else tag_rows(split.corpus)
        self._lengths: dict[int, tuple[Lengths, NDArray[np.int64]]] = {}
        self._lock = threading.Lock()
        self.src_lengths = LengthsByPart(lambda epoch: self.lengths(epoch)[0], 2**EPOCH_BITS)
        self.tgt_lengths = LengthsByPart(lambda epoch: self.lengths(epoch)[1], 2**EPOCH_BITS)

    def plan(self, max_tokens: int, seed: int, epoch: int) -> WholePlan:
        """See `TrainingSplit`. A row holds its epoch."""
        plan = self.split.mixture.plan if self.split.mixture else plan_batches
        batches = plan(*self.lengths(epoch), max_tokens, seed, epoch)
        return EpochPlan([rows + (epoch << EPOCH_BITS) for rows in batches], epoch, self._measured(epoch)[1])

    def batch(self, indices: Rows) -> Batch:
        """See `TrainingSplit`. The rows are of one epoch."""
        src, tgt, _ = self._sides(int(indices[0]) >> EPOCH_BITS, indices & (2**EPOCH_BITS - 1))
        rows = np.arange(len(indices))
        return self.form.batch_of(src.gather(rows), tgt.gather(rows))

    def where(self, index: int) -> str:
        """See `TrainingSplit`."""
        place = index & (2**EPOCH_BITS - 1)
        turned = ", from target to source" if place >= len(self.split) else ""
        return self.split.where(place % len(self.split)) + turned

    def lengths(self, epoch: int) -> Lengths:
        """The lengths of both sides in this epoch, by place."""
        return self._measured(epoch)[0]

    def _measured(self, epoch: int) -> tuple[Lengths, NDArray[np.int64]]:
        """The lengths, and how many pairs kept their usual pieces and were cut. Those of long past epochs are
        forgotten.
        """
        with self._lock:
            if epoch not in self._lengths:
                number = len(self.split) * (2 if epoch < self.both_epochs else 1)
                src, tgt = np.empty((2, number), np.int32)
                changed = np.zeros(2, np.int64)
                for start in range(0, number, SEGMENTED_AT_ONCE):
                    places = np.arange(start, min(start + SEGMENTED_AT_ONCE, number))
                    src_ids, tgt_ids, others = self._sides(epoch, places)
                    src[places], tgt[places] = src_ids.lengths + 1, self.form.num_targets(tgt_ids)
                    changed += others
                self._lengths = {other: found for other, found in self._lengths.items() if other >= epoch - 2}
                self._lengths[epoch] = (src, tgt), changed
            return self._lengths[epoch]

    def _sides(self, epoch: int, places: Rows) -> tuple[IdColumn, IdColumn, NDArray[np.int64]]:
        """Source and target of the pairs at these places of an epoch, how many kept their usual pieces, and how many
        lines were cut for their noise.
        """
        turned = places >= len(self.split)
        lines = self.split.rows[places % len(self.split)]
        usual = [column.take(lines) for column in (self.split.ids.src, self.split.ids.tgt)]
        dropped = [
            side if dropout is None else self._dropped(dropout, side, (self.seed, epoch, number), 2 * lines + turned)
            for number, (dropout, side) in enumerate(zip(self.dropouts, usual, strict=True))
        ]
        is_long = (dropped[0].lengths >= self.max_len) | (dropped[1].lengths >= self.max_len)
        columns = [_with_rows_of(other, is_long, one) for one, other in zip(usual, dropped, strict=True)]
        num_cut = 0
        if self.noise is not None:
            of_src, of_tgt = columns
            is_mono, num_tags = self.is_mono[lines], self.num_tags[lines]
            *columns, num_cut = self.noise.hidden(of_src, of_tgt, is_mono, num_tags, (epoch,), lines)
        src, tgt = (_with_rows_of(columns[side], turned, columns[1 - side]) for side in (0, 1))
        return src, tgt, np.array([is_long.sum(), num_cut])

    def _dropped(self, dropout: BPEDropout, side: IdColumn, place: tuple[int, ...], lines: Rows) -> IdColumn:
        ids, lengths = dropout.segment(side.ids, side.lengths.astype(np.int64), line_seeds((*place, _DROPOUT), lines))
        return IdColumn(ids, lengths.astype(np.int32))


class EpochPlan(WholePlan):
    """The plan of an epoch in which some pairs kept their usual pieces, and some lines were cut for their noise."""

    def __init__(self, batches: list[Rows], epoch: int, changed: NDArray[np.int64]) -> None:
        super().__init__(batches)
        self._epoch, (self._num_kept, self._num_cut) = epoch, changed.tolist()

    def summary(self) -> str | None:
        """How many pairs kept their usual pieces and how many lines were cut, where there are any."""
        said = []
        if self._num_kept:
            kept = counted(self._num_kept, "pair kept its", "pairs kept their")
            said.append(f"{kept} usual pieces, since tokenizer.bpe_dropout makes more of them than model.max_len")
        if self._num_cut:
            cut = counted(self._num_cut, "line was", "lines were")
            said.append(f"{cut} cut in half, since data.noise makes more of them than model.max_len")
        return f"epoch {self._epoch + 1}: {'; '.join(said)}" if said else None


def _with_rows_of(column: IdColumn, here: NDArray[np.bool_], other: IdColumn) -> IdColumn:
    """Where `here` is true the rows of the other column, which has as many."""
    places = np.flatnonzero(here)
    return column.with_rows(places, other.take(places))
