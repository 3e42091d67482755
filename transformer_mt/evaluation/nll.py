"""How surprised a model is by the references."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from transformer_mt.data.batching import plan_in_order
from transformer_mt.data.preparation import Split
from transformer_mt.machine.device import autocast
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import batch_loss


@dataclass(frozen=True)
class NllResult:
    """Mean negative log-likelihood a target token (EOS counted), in nats, over `num_tokens` of them."""

    nll: float
    num_tokens: int

    @property
    def ppl(self) -> float:
        """exp(nll), infinite where that overflows."""
        return math.exp(self.nll) if self.nll < 700 else math.inf


@torch.inference_mode()
def split_nll(
    model: TranslationModel,
    split: Split,
    max_tokens: int,
    precision: str = "fp32",
    between_batches: Callable[[], None] = lambda: None,
) -> NllResult:
    """Teacher-forced, without label smoothing or dropout. Does not depend on max_tokens beyond rounding."""
    assert not model.training, "dropout would change the nll"
    device = next(model.parameters()).device
    total, num_tokens = 0.0, 0
    for rows in plan_in_order(split.src_lengths, split.tgt_lengths, max_tokens):
        between_batches()
        batch = split.batch(rows).to(device)
        with autocast(precision, device):
            total += batch_loss(model, batch.src, batch.tgt_in, batch.tgt_out, label_smoothing=0.0).nll.item()
        num_tokens += batch.num_tokens
    return NllResult(total / num_tokens, num_tokens)
