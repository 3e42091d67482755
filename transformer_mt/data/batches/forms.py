"""What pairs become in a batch: a source, and a target that is written after it or told in the places of the source."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.batches.batching import Batch, Ids, batch_of_ids, with_eos
from transformer_mt.data.id_file import IdColumn


class Form(NamedTuple):
    """`batch_of` makes a batch from each side's ids in rows. `num_targets` says of each row of a target column how many
    tokens of it are told.
    """

    batch_of: Callable[[Ids, Ids], Batch]
    num_targets: Callable[[IdColumn], NDArray[np.int32]]


def _in_place_batch(src: Ids, tgt: Ids) -> Batch:
    """`src` and `tgt` as in `batch_of_ids`, each target row as long as its source, with PAD where nothing is told. No
    target belongs to EOS. All three tensors have one shape; `tgt_in` is x + EOS too.
    """
    ids, is_real = with_eos(*src)
    targets = tgt[0].astype(np.int64)
    targets[np.arange(targets.shape[1]) >= tgt[1][:, None]] = PAD_ID
    assert targets.shape == ids.shape, "a target for each place"
    real, src_real = np.flatnonzero(targets), np.flatnonzero(is_real)
    num_padding = 2 * (is_real.size - len(src_real))
    source, target, *places = (torch.from_numpy(array) for array in (ids, targets, real, src_real))
    return Batch(source, source, target, places[0], places[1], len(real), num_padding)


def _num_told(column: IdColumn) -> NDArray[np.int32]:
    ends = np.cumsum(column.lengths, dtype=np.int64)
    told = np.concatenate([[0], np.cumsum(column.ids != PAD_ID)])
    return (told[ends] - told[ends - column.lengths]).astype(np.int32)


AS_PAIRS = Form(batch_of_ids, lambda column: column.lengths + np.int32(1))  # EOS is told too
IN_PLACE = Form(_in_place_batch, _num_told)
