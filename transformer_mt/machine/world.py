"""The processes that train together, as each of them sees them: its own place, and what they tell each other.

They tell each other small numbers and objects, by gloo where those lie in the memory of the CPU. For gradients see
`training/sharing/choose.py`. `joining.py` brings the processes together, and `processes.py` watches over them.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from transformer_mt.errors import ToldElsewhereError, UserError

T = TypeVar("T")
LOOK_SECONDS = 0.05
FIRST_SECONDS = 3.0  # within which the first process mostly comes to an error that another one came to


@dataclass
class World:
    """By default this process alone, for which every method is free.

    All processes make the same calls in the same order. Each call is an appointment: a hung process misses it, and the
    watch of `joined_world` sees that.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    store: Any = field(default=None, repr=False)
    _num_appointments: int = field(default=0, init=False)
    _num_waits: int = field(default=0, init=False)

    @property
    def is_first(self) -> bool:
        """Whether this is the one process that writes and speaks."""
        return self.rank == 0

    def arrive(self) -> None:
        """Say that this process has come to the next appointment."""
        if self.size > 1:
            self._num_appointments += 1
            self.store.set(f"at/{self.rank}", str(self._num_appointments))

    def told_by_one(self, error: UserError) -> UserError:
        """What to raise for an error that all processes come to: the first one tells it. Where that does not come to it
        soon, as where a file or the memory differs on another machine, one of the others does.
        """
        if self.size == 1:
            return error
        most = time.monotonic() + FIRST_SECONDS
        with suppress(RuntimeError):  # the first process has ended, and with it the store that it kept
            while not self.is_first and time.monotonic() < most and not self.store.check(["told"]):
                time.sleep(LOOK_SECONDS)
            if self.store.add("told", 1) == 1:
                return error
        return ToldElsewhereError(str(error))

    def sum(self, numbers: list[float]) -> list[float]:
        """The sums over processes, the same in all of them."""
        if self.size == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.float64)
        self.arrive()
        distributed.all_reduce(total)
        return total.tolist()

    def largest(self, tensor: Tensor) -> Tensor:
        """Write into the tensor the largest over processes of each of its numbers, without waiting for a GPU."""
        if self.size > 1:
            self.arrive()
            distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return tensor

    def first(self, make: Callable[[], T], patient: bool = False) -> T:
        """Call `make` in the first process, and return its result in all of them.

        If it raises a UserError or an OSError there, the others raise ToldElsewhereError. `patient`: the others wait
        however long it takes; otherwise it counts as a hang after the usual time.
        """
        if self.size == 1:
            return make()
        self._num_waits += 1
        key = f"first/{self._num_waits}"
        said: list[Any] = [None, None]
        failure: Exception | None = None
        if self.is_first:
            try:
                said[0] = make()
            except (UserError, OSError) as error:
                failure, said[1] = error, str(error)
            self.store.set(key, "")
        elif patient:
            self._wait_for([key])
        self.arrive()
        distributed.broadcast_object_list(said, src=0)
        if failure is not None:
            raise failure
        if said[1] is not None:
            raise ToldElsewhereError(said[1])
        return said[0]

    def one_first(self, make: Callable[[], T]) -> T:
        """Call `make` in all processes, and return its result: on each machine first in one process, which leaves on
        disk what the others then find.

        The others wait however long it takes. Where it raises a UserError, all processes of the machine do.
        """
        if self.size == 1:
            return make()
        self._num_waits += 1
        here = f"made/{self._num_waits}"
        mine = f"{here}/machine/{os.environ.get('GROUP_RANK', '0')}"
        if self.local_rank > 0:
            self._wait_for([mine])
            if said := self.store.get(mine).decode():
                raise ToldElsewhereError(said)
            made = make()
        else:
            try:
                made = make()
            except UserError as error:
                self.store.set(mine, str(error))
                raise
            self.store.set(mine, "")
        self.store.set(f"{here}/{self.rank}", "")
        self._wait_for([f"{here}/{rank}" for rank in range(self.size)])
        return made

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self.arrive()
        distributed.all_gather_object(values, value)
        return values

    def share(self, items: list[T]) -> list[T]:
        """This process's part of the items: every `size`-th. `merge` puts the parts together again."""
        return items[self.rank :: self.size]

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Write the first process's tensor into that of the others, which is contiguous and of the same shape."""
        if self.size > 1:
            self.arrive()
            distributed.broadcast(tensor, src=0)
        return tensor

    def _wait_for(self, keys: list[str]) -> None:
        """Wait without end, in a way that Ctrl-C gets through. ToldElsewhereError where another process ended with an
        error of its own, as on a machine whose disk is full: what is waited for never comes.
        """
        while not self.store.check(keys):
            if self.store.check(["left"]):
                raise ToldElsewhereError("another process ended before its time")
            time.sleep(LOOK_SECONDS)


ALONE = World()


def merge(parts: list[list[T]]) -> list[T]:
    """The whole list, of which `World.share` gave `parts[r]` to process r."""
    merged: list[Any] = [None] * sum(len(part) for part in parts)
    for rank, part in enumerate(parts):
        merged[rank :: len(parts)] = part
    return merged
