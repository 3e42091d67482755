"""`training.max_tokens: auto`: an update of `update_tokens` positions in the fewest micro-batches that memory holds."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import memory_of_machine
from transformer_mt.training.memory.probe import rehearse_largest
from transformer_mt.training.updates import Updater

_BYTES = 4  # of a number that a step holds; with autocast some have half of that
# A CPU's memory is not tried, because Linux ends a process that takes too much. It goes by the estimate instead. The
# machine has other uses too.
_SHARE_OF_MACHINE = 0.25
# What is kept free of a GPU in the try: later batches of nearly that size meet a memory in pieces.
_SPARE_SHARE = 0.05


@dataclass(frozen=True)
class MicroBatches:
    """How an update is shared out: each of `world.size` processes computes `grad_accum` of at most `max_tokens`."""

    max_tokens: int
    grad_accum: int


def choose_max_tokens(
    updater: Updater, split: TrainingSplit, plan: Callable[[int], list[Rows]], update_tokens: int, max_len: int
) -> MicroBatches:
    """The largest micro-batches that fit the memory of every process, where processes x grad_accum x max_tokens are
    `update_tokens`. `plan` gives the micro-batches for a max_tokens. Leaves everything as it was. Where not even the
    smallest fit, they are returned: `Updater.update` then splits them. All processes must call this.

    Raises UserError where the processes' shares cannot hold the longest pair, and where one pair does not fit.
    """
    world = updater.world
    most = update_tokens // (world.size * max_len)
    if most == 0:
        error = UserError(
            f"training.update_tokens is {update_tokens:,}, and {world.size} processes with a pair of model.max_len "
            f"{max_len:,} each need {world.size * max_len:,}. Raise update_tokens, or start fewer processes."
        )
        raise world.told_by_one(error)

    def tokens(grad_accum: int) -> int:
        return update_tokens // (world.size * grad_accum)

    def fits(grad_accum: int) -> bool:
        here = _fits(updater, split, plan(tokens(grad_accum)), accumulates=grad_accum > 1)
        return world.sum([float(not here)]) == [0.0]

    grad_accum = fewest(fits, most)
    return MicroBatches(tokens(grad_accum), grad_accum)


def fewest(fits: Callable[[int], bool], most: int) -> int:
    """The least number up to `most` that fits, where all greater ones do too; `most` where none does. Few are tried:
    doubles, then halves of what is left between.
    """
    failed, number = 0, 1
    while not fits(number):
        if number == most:
            return most
        failed, number = number, min(2 * number, most)
    while number - failed > 1:
        middle = (failed + number) // 2
        if fits(middle):
            number = middle
        else:
            failed = middle
    return number


def _fits(updater: Updater, split: TrainingSplit, batches: list[Rows], accumulates: bool) -> bool:
    """Whether this process's memory has room for the largest of the batches."""
    device, spare = updater.device, 0
    if device.type == "cpu" and (there := memory_of_machine()) is not None:
        updater.limit.take_passes(updater.config.consistency)
        if _BYTES * int(updater.limit.demand(split, batches).max()) > _SHARE_OF_MACHINE * there:
            return False
    if device.type == "cuda":
        spare = int(_SPARE_SHARE * torch.cuda.mem_get_info(device)[1])
    return rehearse_largest(updater, split, batches, accumulates, spare)
