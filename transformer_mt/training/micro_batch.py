"""Forward and backward pass of one micro-batch. An update and its replay (`tmt debug batch`) share this code."""

import numpy as np
import torch
from torch import nn

from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.data.batches.batching import Batch
from transformer_mt.machine.device import autocast
from transformer_mt.model.cpu.dropout import draws_with_numba
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
    consistency: ConsistencyConfig | None = None,
) -> LossSums:
    """Add the gradient of this batch's share in a loss over `num_tokens` tokens, times `weight`. Returns the batch's
    sums, detached.

    `with_loss` is a `WithLoss`, or a module that torch has wrapped around one. `seed` is that of the batch's dropout
    (see `dropout_seed`). With `consistency` it passes twice. The gradient is scaled by `scaler`; the caller
    unscales it.
    """
    torch.manual_seed(seed)
    device = next(with_loss.parameters()).device
    batch = batch.to(device)
    with autocast(precision, device):
        loss: LossSums = with_loss(batch, label_smoothing, consistency)
    scaler.scale(loss.loss * weight / num_tokens).backward()
    return loss._replace(loss=loss.loss.detach(), nll=loss.nll.detach())


def computed_with(model: TranslationModel, precision: str) -> dict[str, str | int | bool]:
    """What the numbers of an update depend on beside its weights, data and seed, under the names of `TrainingState`.

    `numba`: dropout draws with it. `unpadded`: the layers see no padding, so dropout draws nothing for it. `compiled`:
    never here, and in an update it may be; dropout then drops other elements.
    """
    device = next(model.parameters()).device
    with autocast(precision, device):
        unpadded = model.goes_unpadded()
    return {
        "device": str(device),
        "precision": precision,
        "num_threads": torch.get_num_threads(),
        "torch_version": str(torch.__version__),
        "numba": draws_with_numba(device),
        "unpadded": unpadded,
        "compiled": False,
    }


def dropout_seed(seed: int, step: int, index: int, part: int = 1) -> int:
    """The seed of torch's generators for micro-batch `index` of update `step`, the same in every process.

    `part` is the number of the `Part`, 1 for the whole micro-batch.
    """
    place = (seed, step, index) if part == 1 else (seed, step, index, part)
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
