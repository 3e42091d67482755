"""The pairs of an update whose loss stood out, the hardest first."""

from typing import Any

import numpy as np

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.data.batches.batching import Batch
from transformer_mt.data.preparation import TrainingData
from transformer_mt.decoding.scoring import token_log_probs
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.running_update import RunningUpdate

MOST_PAIRS = 50  # of an update are recorded
AT_ONCE = 32


def spiked_pairs(model: TranslationModel, update: RunningUpdate, data: TrainingData) -> list[dict[str, Any]]:
    """Where each pair of an update stands, its texts as the model read them, and its nll a token in evaluation mode,
    by which they are sorted; the first `MOST_PAIRS`. Where memory or numbers do not allow that, without nll.

    The weights are those after the update; where an updater runs ahead they may be those after the next.
    """
    rows = [int(row) for part in update.micro_batches for row in part]
    batches = [update.split.batch(part) for part in update.micro_batches]
    ids = [pair for batch in batches for pair in _ids(batch)]
    was_training = model.training
    model.eval()
    try:
        nlls: list[float | None] = [*_nlls(model, ids)]
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
            "src": data.src_tokenizer.decode(ids[i][0]),
            "tgt": data.tgt_tokenizer.decode(ids[i][1]),
        }
        for i in order
    ]


def _nlls(model: TranslationModel, ids: list[tuple[list[int], list[int]]]) -> list[float]:
    """The nll a token of each pair, computed in parts of pairs of like length."""
    order = sorted(range(len(ids)), key=lambda i: max(map(len, ids[i])))
    found = np.zeros(len(ids))
    for start in range(0, len(ids), AT_ONCE):
        part = order[start : start + AT_ONCE]
        found[part] = [-float(np.mean(each)) for each in token_log_probs(model, [ids[i] for i in part])]
    return [float(f"{nll:.4g}") for nll in found.tolist()]


def _ids(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Source and target of each pair without special tokens at the ends."""
    sides = [[[i for i in row if i not in (PAD_ID, BOS_ID, EOS_ID)] for row in side.tolist()] for side in
             (batch.src, batch.tgt_out)]  # fmt: skip
    return list(zip(*sides, strict=True))
