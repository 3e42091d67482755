"""Whole words that are taken out of the input in training: word dropout, and the token cutoff of SimCut.

The word's embedding is 0. Its position is still added, so the model knows that there was a word.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.config.sections.model import ModelConfig


class WordFactors(NamedTuple):
    """What the embedding of each token is multiplied by: (batch, src_len) and (batch, tgt_len)."""

    src: Tensor
    tgt: Tensor


def word_factors(config: ModelConfig, src: Tensor, tgt_in: Tensor) -> WordFactors | None:
    """Word dropout (Sennrich et al. 2016, "Edinburgh Neural Machine Translation Systems for WMT 16"): 0 with the
    probability of the side, else 1 / (1 - p), so that the mean stays. Each place is drawn by itself. None where neither
    side has any.
    """
    p_src, p_tgt = config.src_word_dropout, config.tgt_word_dropout
    if not p_src and not p_tgt:
        return None
    return WordFactors(kept(src, p_src) / (1 - p_src), kept(tgt_in, p_tgt) / (1 - p_tgt))


def kept(ids: Tensor, p: float) -> Tensor:
    """0 with probability p, else 1: (batch, length), by torch's global generator. A patch is a word."""
    return (torch.rand(ids.shape[:2], device=ids.device) >= p).float()


def with_cuts(factors: WordFactors | None, src: Tensor, tgt_in: Tensor, p: float) -> WordFactors | None:
    """The factors of a batch whose second half is the second pass, in which tokens are cut out with probability p
    (Gao et al. 2022). Without cuts they stay as they are.
    """
    if not p:
        return factors
    cuts = []
    for ids in (src, tgt_in):
        half = len(ids) // 2
        whole = torch.ones(ids[:half].shape[:2], device=ids.device)
        cuts.append(torch.cat((whole, kept(ids[half:], p))))
    if factors is None:
        return WordFactors(*cuts)
    return WordFactors(factors.src * cuts[0], factors.tgt * cuts[1])
