"""A try, before the first step, whether the largest micro-batch fits the memory."""

import torch

from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.model.named_parts import trained
from transformer_mt.training.memory.memory_parts import Part
from transformer_mt.training.micro_batch import dropout_seed
from transformer_mt.training.updates import Updater


def probe(updater: Updater, split: TrainingSplit, plan: list[Rows]) -> Rows | None:
    """Compute forward and backward pass of the largest planned micro-batch (see `MemoryLimit`), and leave everything as
    it was. Where later updates have two passes, so has this. Returns the micro-batch where it does not fit;
    `Updater.update` then splits all of that size from the start.
    Raises UserError where a single pair does not fit, or where the micro-batch does not and the model is sharded.
    """
    updater.model.train()
    limit = updater.limit
    limit.take_passes(updater.config.consistency)
    largest = limit.largest(split, plan)
    part = next(limit.pieces(split, Part(0, largest)))
    # Forked so that the probe leaves no trace; an update does not need it, for it seeds the generators itself.
    with torch.random.fork_rng(range(torch.cuda.device_count()) if updater.device.type == "cuda" else ()):
        while not updater.smaller_parts.fits(split, part, False, _rehearse, updater, split.batch(part.rows)):
            part = Part(0, limit.largest(split, [half.rows for half in part.halves()]), 2 * part.number)
    updater.optimizer.zero_grad(set_to_none=True)
    return largest if part.number > 1 else None


def _rehearse(updater: Updater, batch: Batch) -> None:
    """A pass beside all that memory holds later: Adam's two moments, and the gradient of earlier micro-batches."""
    parameters = list(trained(updater.model).values())
    moments = [] if updater.optimizer.state else [torch.empty_like(parameter) for parameter in parameters * 2]
    if updater.config.grad_accum > 1:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    updater.backward(
        batch, dropout_seed(updater.seed, 0, 0), batch.num_tokens, last=False, consistency=updater.config.consistency
    )
    del moments
