"""Batches whose targets stand in the places of the source."""

import numpy as np
import torch

from transformer_mt.config.special_ids import EOS_ID, PAD_ID
from transformer_mt.data.batches.forms import AS_PAIRS, IN_PLACE
from transformer_mt.data.id_file import IdColumn


def column(*rows: list[int]) -> IdColumn:
    return IdColumn(
        np.array([i for row in rows for i in row], np.int32), np.array([len(row) for row in rows], np.int32)
    )


SRC = column([5, 4, 7], [], [4], [8, 9, 9, 9])
TGT = column([0, 6, 0], [], [8], [0, 9, 0, 5])


def test_targets_in_place_by_hand() -> None:
    rows = np.array([3, 0, 2])
    batch = IN_PLACE.batch_of(SRC.gather(rows), TGT.gather(rows))
    assert batch.src.tolist() == [[8, 9, 9, 9, EOS_ID], [5, 4, 7, EOS_ID, PAD_ID], [4, EOS_ID, PAD_ID, PAD_ID, PAD_ID]]
    assert batch.tgt_out.tolist() == [[0, 9, 0, 5, 0], [0, 6, 0, 0, 0], [8, 0, 0, 0, 0]]
    assert torch.equal(batch.tgt_in, batch.src)
    assert batch.real.tolist() == [1, 3, 6, 10]
    assert (batch.num_tokens, batch.num_padding, batch.num_cells) == (4, 8, 30)


def test_what_is_told_is_counted_by_row() -> None:
    assert IN_PLACE.num_targets(TGT).tolist() == [1, 0, 1, 2]
    assert AS_PAIRS.num_targets(TGT).tolist() == [4, 1, 2, 5]


def test_more_columns_keep_every_target() -> None:
    rows = np.array([0, 3])
    batch = IN_PLACE.batch_of(SRC.gather(rows), TGT.gather(rows))
    wider = batch.widened(1, 1)
    assert wider.src.shape == wider.tgt_out.shape == (2, 6)
    assert torch.equal(wider.tgt_out.flatten()[wider.real], batch.tgt_out.flatten()[batch.real])
