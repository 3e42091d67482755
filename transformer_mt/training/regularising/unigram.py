"""Label smoothing by unigram: the smoothed part goes to words by their share of the training targets.

Uniform, half of it goes to words that hardly ever come (Pereyra et al. 2017 compare both).
"""

import numpy as np
import torch
from torch import Tensor

from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.preparation import Split

COUNTED_AT_ONCE = 2**16  # pairs


def smoothing_prior(config: TrainingConfig, split: Split | Stream, vocab_size: int) -> Tensor | None:
    """(vocab_size,): the distribution by which targets are smoothed; None where it is uniform."""
    if config.label_smoothing_by == "uniform":
        return None
    assert isinstance(split, Split), "the config refuses a stream"
    return unigram(split, vocab_size)


def unigram(split: Split, vocab_size: int) -> Tensor:
    """(vocab_size,) float32: each token's share of all target tokens, an EOS for each pair among them."""
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, len(split), COUNTED_AT_ONCE):
        own = split.ids.tgt.take(split.rows[start : start + COUNTED_AT_ONCE]).ids
        counts += np.bincount(own.astype(np.int64), minlength=vocab_size)
    counts[EOS_ID] += len(split)
    return torch.from_numpy(counts / counts.sum()).float()
