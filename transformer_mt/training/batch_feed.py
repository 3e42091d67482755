"""Micro-batches made ahead of the step that computes them: a thread gathers, pads and moves their rows to the device.

The rows of a micro-batch and the order of micro-batches are functions of (seed, epoch) alone. So the thread changes
when a batch is made, and nothing else. Another thread plans the next epoch, from the middle of an epoch on.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import torch
from torch.profiler import record_function

from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.plan import Plan
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.training.memory.memory_parts import Part

DEPTH = 4  # batches that wait to be asked for
DATA_WAIT = "data wait"  # the name in a profile of the time in which a step waits for its batch


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device. Where the device has no room for it beside the running step, the batch stays where it
    is: its own step moves it, and can be split if it does not fit. So does one for Apple's GPU, where torch ends the
    process if two threads ask for work at once.
    """
    if device.type == "mps":
        return batch
    try:
        return batch.to(device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return batch


class Feed:
    """The batches of process `rank` of `size`: the micro-batches rank, rank + size, rank + 2 size and so on.

    `plan` returns the micro-batches of an epoch, `make` the batch of some rows. Both are called in threads, so they
    must not draw from global generators. Their errors are raised where the batch or the plan is asked for. A feed is a
    context; its threads end with it.
    """

    def __init__(
        self,
        plan: Callable[[int], Plan],
        make: Callable[[Rows], Batch],
        rank: int = 0,
        size: int = 1,
        num_epochs: int | None = None,
    ) -> None:
        self._make_plan, self._make = plan, make
        self._rank, self._size = rank, size
        self._num_epochs = num_epochs
        self._planner = ThreadPoolExecutor(1, "tmt_plan")
        self._maker = ThreadPoolExecutor(1, "tmt_feed")
        self._plans: dict[int, Future[Plan]] = {}
        self._ahead: deque[tuple[tuple[int, int], Future[Batch | None]]] = deque()
        self._waited = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for executor in (self._maker, self._planner):
            executor.shutdown(wait=True, cancel_futures=True)

    def plan(self, epoch: int) -> Plan:
        """The micro-batches of an epoch, those of all processes. Plans of earlier epochs are forgotten."""
        for past in [other for other in self._plans if other < epoch]:
            del self._plans[past]
        return self._planned(epoch).result()

    def batch(self, epoch: int, first: int, part: Part) -> Batch:
        """The batch of a part of the update whose micro-batches begin at `first` in the epoch.

        Whole micro-batches are expected in order. A part is made on the spot, and so is a micro-batch that is
        asked for again.
        """
        began = time.perf_counter()
        try:
            with record_function(DATA_WAIT):
                if part.number != 1:
                    return self._make(part.rows)
                return self._in_turn((epoch, first + part.index), part.rows)
        finally:
            self._waited += time.perf_counter() - began

    def take_waited(self) -> float:
        """The seconds that callers of `batch` have waited since the last call of this method."""
        waited, self._waited = self._waited, 0.0
        return waited

    def _in_turn(self, place: tuple[int, int], rows: Rows) -> Batch:
        while self._ahead and self._ahead[0][0] < place:  # this one was split, so its parts were made on the spot
            self._ahead.popleft()[1].cancel()
        if self._ahead and self._ahead[0][0] > place:  # this one was given out before
            return self._make(rows)
        if not self._ahead:
            self._submit(place)
        batch = self._ahead.popleft()[1]
        self._look_ahead(place)
        found = batch.result()
        assert found is not None, "there is no such place in the plan"
        return found

    def _look_ahead(self, place: tuple[int, int]) -> None:
        """Order the batches after `place` until DEPTH of them wait, as far as the epochs are planned already."""
        epoch, index = place
        number = self.plan(epoch).num_micro_batches
        if (number is None or 2 * index >= number) and not self._is_over(epoch + 1):
            self._planned(epoch + 1)
        epoch, index = self._ahead[-1][0] if self._ahead else place
        while len(self._ahead) < DEPTH and self._planned(epoch).done():
            index += self._size
            if not self._planned(epoch).result().has(index):
                epoch, index = epoch + 1, self._rank
                if self._is_over(epoch):
                    return
            self._submit((epoch, index))

    def _submit(self, place: tuple[int, int]) -> None:
        plan, index = self._planned(place[0]), place[1]

        def make() -> Batch | None:  # None in an epoch that has fewer micro-batches than there are processes
            rows = plan.result().get(index)
            return None if rows is None else self._make(rows)

        self._ahead.append((place, self._maker.submit(make)))

    def _planned(self, epoch: int) -> Future[Plan]:
        if epoch not in self._plans:
            self._plans[epoch] = self._planner.submit(self._make_plan, epoch)
        return self._plans[epoch]

    def _is_over(self, epoch: int) -> bool:
        return self._num_epochs is not None and epoch >= self._num_epochs
