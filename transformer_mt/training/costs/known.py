"""What is known of a training from its config and its data: parameters, sizes, steps, padding."""

from dataclasses import dataclass

import numpy as np
import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.noise.epoch_split import split_by_epochs
from transformer_mt.data.preparation import TrainingData
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.named_parts import freeze, trained
from transformer_mt.training.resuming.checkpoints import checkpoint_bytes, most_checkpoints


@dataclass(frozen=True)
class Epoch:
    """The first epoch: updates, target tokens, and the part of all positions that is padding."""

    updates: int
    num_tokens: int
    padding: float


@dataclass(frozen=True)
class KnownCosts:
    """`epoch` is None for a stream, and where `training.max_tokens: auto` is yet to be tried out."""

    parameters: int
    trained: int
    checkpoint_bytes: int
    checkpoints: int  # on the disk at once, at most
    epoch: Epoch | None


def known_costs(config: RunConfig, data: TrainingData, max_tokens: int | None, grad_accum: int) -> KnownCosts:
    """`max_tokens` and `grad_accum` are those of the config, or those that `auto` has come to; None: not known yet."""
    sizes = data.src_tokenizer.vocab_size, data.tgt_tokenizer.vocab_size
    epoch = None if max_tokens is None else first_epoch(config, data, max_tokens, grad_accum)
    with torch.device("meta"):
        outline = ARCHITECTURES[config.model.architecture](config.model, *sizes)
    freeze(outline, config.training.freeze)
    return KnownCosts(
        parameters=sum(parameter.numel() for parameter in outline.parameters()),
        trained=sum(parameter.numel() for parameter in trained(outline).values()),
        checkpoint_bytes=checkpoint_bytes(config, outline),
        checkpoints=most_checkpoints(config),
        epoch=epoch,
    )


def first_epoch(config: RunConfig, data: TrainingData, max_tokens: int, grad_accum: int) -> Epoch | None:
    """None for a stream, whose length is not known."""
    split = split_by_epochs(data, config)
    plan = split.plan(max_tokens, config.seed, 0)
    if plan.num_micro_batches is None:
        return None
    num_cells = num_tokens = num_real = 0
    for rows in plan.known():
        src, tgt = split.src_lengths[rows], split.tgt_lengths[rows]
        num_cells += len(rows) * (int(src.max()) + int(tgt.max()))
        num_tokens += int(tgt.sum(dtype=np.int64))
        num_real += int(src.sum(dtype=np.int64) + tgt.sum(dtype=np.int64))
    return Epoch(-(-plan.num_micro_batches // grad_accum), num_tokens, 1 - num_real / num_cells)
