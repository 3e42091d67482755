"""The noise of `data.noise`, on the pairs that come from text in one language; others stay as they are.

What is hidden of a line is a function of the seed, the epoch and the line's place. So it is the same after a kill, and
on any number of processes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.config.special_ids import PAD_ID, UNK_ID
from transformer_mt.data.batches.forms import AS_PAIRS, IN_PLACE
from transformer_mt.data.batches.stream_window import Window
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.id_file import IdColumn
from transformer_mt.data.noise.bpe_dropout import line_seeds
from transformer_mt.data.noise.objectives import OBJECTIVES, Entries, Lines
from transformer_mt.data.preparation import Split
from transformer_mt.data.tokenizers import Tokenizer

SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "؟", "։", "።")
GAPS = ("", " ")  # before such a mark: at a word, and by itself, as in text whose words were parted
_NOISE = 0x4015E  # tells these random numbers from others of the same seed
_VALIDATION = (2**31, 0xA11)  # in the place of an epoch
_SOURCE_BITS = 44  # of the place of a line in a stream: its source above them, its line below


class Noise:
    """Hides what the config says. Threads may share it."""

    def __init__(self, config: RunConfig, tokenizer: Tokenizer) -> None:
        """`tokenizer` of the target."""
        assert config.data.noise is not None, "who asks looks first"
        self.config = config.data.noise
        self.seed = config.seed
        self.sources = config.data.train
        self.max_len = config.model.max_len
        entries = tokenizer.backend.get_vocab()
        masks = [entries[tag] for tag in config.tokenizer.all_tags[len(config.tokenizer.tags) :]]
        self.form = IN_PLACE if self.config.hiding.in_place else AS_PAIRS
        marks = [
            tokenizer.encode(f"x{gap}{mark}")[len(tokenizer.encode("x")) :] for mark in SENTENCE_ENDS for gap in GAPS
        ]
        ends = sorted({ids[0] for ids in marks if len(ids) == 1} - {UNK_ID})  # which stands for any unknown word
        self.entries = Entries(*(np.array(ids, np.int64) for ids in (masks, ends, tokenizer.text_ids())))

    @classmethod
    def of(cls, config: RunConfig, tokenizer: Tokenizer) -> Self | None:
        """None where the config has none."""
        return None if config.data.noise is None else cls(config, tokenizer)

    def hidden(
        self,
        src: IdColumn,
        tgt: IdColumn,
        is_mono: NDArray[np.bool_],
        num_tags: NDArray[np.int32],
        place: tuple[int, ...],
        lines: NDArray[np.int64],
    ) -> tuple[IdColumn, IdColumn, int]:
        """Both sides of some pairs, with noise on those that are text in one language. `place` and the numbers of the
        lines decide what is hidden. What stands before the line in its source, its tag, stays there: `num_tags` ids a
        pair.

        A line whose noised form is longer than `max_len` is cut to its first half, and so on; the third value says how
        many were.
        """
        rows = np.flatnonzero(is_mono)
        before, line = src.take(rows), tgt.take(rows)
        of_tags = num_tags[rows]
        seeds = line_seeds((self.seed, *place, _NOISE), lines[rows])
        whole = line.lengths
        while True:
            new_src, new_tgt = self._noised(line, seeds)
            if self.config.hiding.in_place:  # nothing is told of a tag
                new_tgt = _behind_tags(IdColumn(np.full_like(before.ids, PAD_ID), before.lengths), of_tags, new_tgt)
            new_src = _behind_tags(before, of_tags, new_src)
            is_long = (np.maximum(new_src.lengths, new_tgt.lengths) >= self.max_len) & (line.lengths > 1)
            if not is_long.any():
                cut = int((line.lengths < whole).sum())
                return src.with_rows(rows, new_src), tgt.with_rows(rows, new_tgt), cut
            line = _first(line, np.where(is_long, line.lengths // 2, line.lengths))

    def _noised(self, line: IdColumn, seeds: NDArray[np.int64]) -> list[IdColumn]:
        lines = Lines(line.ids.astype(np.int64), line.lengths.astype(np.int64), seeds)
        found = OBJECTIVES[self.config.kind](lines, self.config, self.entries)
        return [IdColumn(ids, numbers.astype(np.int32)) for ids, numbers in found]

    def of_validation(self, split: Split) -> Split:
        """The split with noise that is the same in every validation."""
        ids, lines = split.ids, np.arange(len(split.ids))
        is_mono, num_tags = mono_rows(split.corpus), tag_rows(split.corpus)
        src, tgt, _ = self.hidden(ids.src, ids.tgt, is_mono, num_tags, _VALIDATION, lines)
        return replace(split, ids=replace(ids, src=src, tgt=tgt), form=self.form)

    def of_window(self, window: Window, epoch: int) -> Window:
        """A window of a stream as this epoch has it."""
        is_mono, num_tags = _are_mono(self.sources)[window.sources], _have_tags(self.sources)[window.sources]
        lines = window.lines + (window.sources.astype(np.int64) << _SOURCE_BITS)
        src, tgt, num_cut = self.hidden(window.src, window.tgt, is_mono, num_tags, (epoch,), lines)
        return replace(window, src=src, tgt=tgt, form=self.form, num_cut=num_cut)


def mono_rows(corpus: Corpus) -> NDArray[np.bool_]:
    """Of each pair whether it is text in one language."""
    return _are_mono([source.config for source in corpus.sources])[corpus.dataset.data.column("source").to_numpy()]


def tag_rows(corpus: Corpus) -> NDArray[np.int32]:
    """Of each pair how many ids of tags the config puts before its source: one or none. The lengths of its sides do not
    say so, since two vocabularies may cut a line into other pieces.
    """
    return _have_tags([source.config for source in corpus.sources])[corpus.dataset.data.column("source").to_numpy()]


def _are_mono(sources: Sequence[SourceConfig]) -> NDArray[np.bool_]:
    return np.array([source.mono is not None for source in sources])


def _have_tags(sources: Sequence[SourceConfig]) -> NDArray[np.int32]:
    return np.array([source.tag is not None for source in sources], np.int32)


def _first(column: IdColumn, lengths: NDArray[np.int32]) -> IdColumn:
    """The first so many ids of each row."""
    own = np.arange(len(column.ids)) - np.repeat(np.cumsum(column.lengths) - column.lengths, column.lengths)
    return IdColumn(column.ids[own < np.repeat(lengths, column.lengths)], lengths)


def _behind_tags(column: IdColumn, numbers: NDArray[np.int32], rows: IdColumn) -> IdColumn:
    """Rows behind the first so many ids of the rows of a column."""
    lengths = numbers + rows.lengths
    at = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_tag = at < np.repeat(numbers, lengths)
    ids = np.empty(len(at), np.int32)
    ids[is_tag] = _first(column, numbers).ids
    ids[~is_tag] = rows.ids
    return IdColumn(ids, lengths)
