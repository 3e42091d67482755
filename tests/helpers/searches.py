"""Searches whose hypotheses do not tie: a model, what it reads, and how it is searched."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from translators import MODELS_BY_NAME, make_translator, rules

from transformer_mt.config.special_ids import EOS_ID, PAD_ID
from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, greedy_search
from transformer_mt.decoding.search.options import LengthNorm
from transformer_mt.model.interface import TranslationModel

CPU = torch.device("cpu")
NORM = LengthNorm("gnmt", 0.6)
LENGTHS = [8, 1, 5, 3, 8]


def model_of(name: str, **options: Any) -> TranslationModel:
    """With logits far apart, so that no two hypotheses tie, and an EOS now and then."""
    model = make_translator({**MODELS_BY_NAME[name], **options}).model
    with torch.no_grad():
        model.output.weight.mul_(3)
    return model


def sources(vocab_size: int, lengths: Sequence[int], seed: int) -> Tensor:
    """Rows of so many tokens and EOS."""
    src = torch.randint(4, vocab_size, (len(lengths), max(lengths) + 1), generator=torch.Generator().manual_seed(seed))
    for row, length in enumerate(lengths):
        src[row, length] = EOS_ID
        src[row, length + 1 :] = PAD_ID
    return src


def search(
    decoder: StepFunction, limits: list[int], beam_size: int, device: torch.device = CPU
) -> list[list[Hypothesis]]:
    if beam_size == 1:
        return greedy_search(decoder, limits, rules(norm=NORM), device)
    return beam_search(decoder, limits, rules(beam_size, 2, NORM), device)
