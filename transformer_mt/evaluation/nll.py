"""The negative log-likelihood that a model gives the references."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.preparation import Split
from transformer_mt.machine.device import autocast
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import batch_loss

_FEW_TOKENS = 4096


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
def batch_nlls(
    model: TranslationModel,
    split: Split,
    batches: list[Rows],
    precision: str = "fp32",
    between_batches: Callable[[], None] = lambda: None,
) -> list[tuple[float, int]]:
    """The sum of the nll and the target tokens of each batch: teacher-forced, without label smoothing or dropout."""
    assert not model.training, "dropout would change the nll"
    device = next(model.parameters()).device
    sums = []
    for rows in batches:
        between_batches()
        batch = split.batch(rows).to(device)
        with autocast(precision, device):
            nll = batch_loss(model, batch.src, batch.tgt_in, batch.tgt_out, 0.0, batch.real).nll.item()
        sums.append((nll, batch.num_tokens))
    return sums


def mean_nll(sums: list[tuple[float, int]]) -> NllResult:
    """The mean over all batches, added up in their order."""
    total, num_tokens = 0.0, 0
    for nll, tokens in sums:  # from Python 3.12 on `sum` is more exact, so its last digits would differ
        total += nll
        num_tokens += tokens
    return NllResult(total / num_tokens, num_tokens)


def tokens_at_once(config: RunConfig) -> int:
    """The max_tokens of batches whose nll is computed: those of training; a few where it tries how many fit."""
    max_tokens = config.training.max_tokens
    return max(_FEW_TOKENS, config.model.max_len) if max_tokens == "auto" else max_tokens
