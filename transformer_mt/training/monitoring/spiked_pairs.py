"""The pairs of an update whose loss stood out, the hardest first."""

from typing import Any

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.data.batches.batching import Batch
from transformer_mt.data.preparation import TrainingData
from transformer_mt.decoding.scoring import batch_log_probs
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.running_update import RunningUpdate

MOST_PAIRS = 50  # of an update are recorded
AT_ONCE = 32


def spiked_pairs(model: TranslationModel, update: RunningUpdate, data: TrainingData) -> list[dict[str, Any]]:
    """Where each pair of an update stands, its texts as the model read them, and its nll a token in evaluation mode,
    by which they are sorted; the first `MOST_PAIRS`. Where memory or numbers do not allow that, without nll. Of a
    picture there is no text.

    The weights are those after the update; where an updater runs ahead they may be those after the next.
    """
    rows = [int(row) for part in update.micro_batches for row in part]
    batches = [update.split.batch(part) for part in update.micro_batches]
    sources = [_ids(row) if row.dim() == 1 else [] for batch in batches for row in batch.src]
    targets = [_ids(row) for batch in batches for row in batch.tgt_out]
    was_training = model.training
    model.eval()
    try:
        nlls: list[float | None] = [nll for batch in batches for nll in _nlls(model, batch)]
    except Exception as error:
        if not isinstance(error, UserError) and not is_out_of_memory(error):
            raise
        nlls = [None] * len(rows)
    finally:
        model.train(was_training)
    order = sorted(range(len(rows)), key=lambda i: -(nlls[i] or 0.0))[:MOST_PAIRS]
    return [
        {
            "where": update.split.where(rows[i]),
            "nll": nlls[i],
            "src": data.src_tokenizer.decode(sources[i]) if sources[i] else "",
            "tgt": data.tgt_tokenizer.decode(targets[i]),
        }
        for i in order
    ]


def _nlls(model: TranslationModel, batch: Batch) -> list[float]:
    """The nll a told token of each pair, computed in parts."""
    parts = zip(*(side.split(AT_ONCE) for side in (batch.src, batch.tgt_in, batch.tgt_out)), strict=True)
    found = [told for sides in parts for told in batch_log_probs(model, Batch.of(*sides))]
    return [float(f"{-sum(told) / len(told):.4g}") for told in found]


def _ids(row: Tensor) -> list[int]:
    """A side of a pair without its special tokens, which may stand within a target that is told in place."""
    return row[~torch.isin(row, torch.tensor([PAD_ID, BOS_ID, EOS_ID]))].tolist()
