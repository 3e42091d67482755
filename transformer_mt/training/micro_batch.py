"""Forward and backward pass of one micro-batch: the part of an update that a replay does again."""

import numpy as np
import torch
from torch import nn

from transformer_mt.data.batching import Batch
from transformer_mt.machine.device import autocast
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums


def add_gradient(
    with_loss: nn.Module,
    batch: Batch,
    seed: int,
    precision: str,
    label_smoothing: float,
    num_tokens: int,
    scaler: torch.GradScaler,
    weight: float = 1.0,
) -> LossSums:
    """Add the gradient of this batch's share in a loss over `num_tokens` tokens, times `weight`; its sums, detached.

    `with_loss` is a `WithLoss`, or what torch has wrapped around it. `seed` is that of the batch's dropout (see
    `dropout_seed`). The gradient is the scaler's, to be unscaled by the caller.
    """
    torch.manual_seed(seed)
    device = next(with_loss.parameters()).device
    batch = batch.to(device)
    with autocast(precision, device):
        loss: LossSums = with_loss(batch, label_smoothing)
    scaler.scale(loss.loss * weight / num_tokens).backward()
    return LossSums(loss.loss.detach(), loss.nll.detach(), loss.load_balancing)


def goes_unpadded(model: TranslationModel, precision: str) -> bool:
    """Whether `add_gradient` takes the layers over tokens without padding."""
    with autocast(precision, next(model.parameters()).device):
        return model.goes_unpadded()


def dropout_seed(seed: int, step: int, index: int, part: int = 1) -> int:
    """The seed of torch's generators for micro-batch `index` of update `step`, whoever computes it.

    `part` is 1 for the whole of it, and the number of a `Part` otherwise.
    """
    place = (seed, step, index) if part == 1 else (seed, step, index, part)
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
