"""A try, before the first step, whether the largest micro-batch fits the memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.model.named_parts import trained
from transformer_mt.training.memory.memory_parts import Part
from transformer_mt.training.micro_batch import dropout_seed
from transformer_mt.training.updates import Updater


def probe(updater: Updater, split: TrainingSplit, plan: list[Rows], accumulates: bool) -> Rows | None:
    """Compute forward and backward pass of the largest planned micro-batch (see `MemoryLimit`), and leave everything as
    it was. Where later updates have two passes, so has this. `accumulates`: a process computes several an update.
    Returns the micro-batch where it does not fit; `Updater.update` then splits all of that size from the start.
    Raises UserError where a single pair does not fit, or where the micro-batch does not and the model is sharded.
    """
    limit = updater.limit
    limit.take_passes(updater.config.consistency)
    largest = limit.largest(split, plan)
    part = next(limit.pieces(split, Part(0, largest)))
    with _no_trace(updater):
        while not _try(updater, split, part, accumulates):
            part = Part(0, limit.largest(split, [half.rows for half in part.halves()]), 2 * part.number)
    return largest if part.number > 1 else None


def rehearse_largest(
    updater: Updater, split: TrainingSplit, plan: list[Rows], accumulates: bool, spare_bytes: int = 0
) -> bool:
    """Whether the largest of these micro-batches fits, as `probe` tries it, and leaves so many bytes. The limit is left
    as it was.
    """
    limit = updater.limit
    limit.take_passes(updater.config.consistency)
    before = limit.smallest_failed
    with _no_trace(updater):
        fits = _try(updater, split, Part(0, limit.largest(split, plan)), accumulates, spare_bytes)
    limit.smallest_failed = before
    return fits


@contextmanager
def _no_trace(updater: Updater) -> Iterator[None]:
    """While inside, passes leave no gradient, and draw from generators that are put back."""
    updater.model.train()
    # Forked for the caller's sake alone: an update seeds the generators itself.
    with torch.random.fork_rng(range(torch.cuda.device_count()) if updater.device.type == "cuda" else ()):
        yield
    updater.optimizer.zero_grad(set_to_none=True)


def _try(updater: Updater, split: TrainingSplit, part: Part, accumulates: bool, spare_bytes: int = 0) -> bool:
    batch, before = split.batch(part.rows), updater.limit.smallest_failed
    work = partial(updater.smaller_parts.fits, split, part, False, _rehearse, updater, batch, accumulates, spare_bytes)
    # Where nothing is noted, memory that graphs held was released, and the same part may fit now.
    return work() or (updater.limit.smallest_failed == before and work())


def _rehearse(updater: Updater, batch: Batch, accumulates: bool, spare_bytes: int) -> None:
    """A pass beside all that memory holds later: Adam's two moments, the gradient of earlier micro-batches, and what is
    to stay free.
    """
    spare = torch.empty(spare_bytes, dtype=torch.uint8, device=updater.device)
    parameters = list(trained(updater.model).values())
    moments = [] if updater.optimizer.state else [torch.empty_like(parameter) for parameter in parameters * 2]
    if accumulates:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    updater.backward(
        batch, dropout_seed(updater.seed, 0, 0), batch.num_tokens, last=False, consistency=updater.config.consistency
    )
    del moments, spare
