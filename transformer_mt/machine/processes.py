"""The processes that train together: who this one is, and what they tell each other.

What they tell are small numbers and objects in the memory of the CPU, by gloo; gradients are the business of
`training/sharing.py`.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage], documented there
from torch.distributed.distributed_c10d import _set_pg_timeout as set_group_timeout
from torch.distributed.rendezvous import rendezvous

from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine import launch

T = TypeVar("T")
LOOK_EVERY_SECONDS = 2.0
VERY_LONG = timedelta(days=30)
CONNECT_TRIES = 3
CONNECT_SECONDS = 60
MARGIN_SECONDS = 10


@dataclass
class World:
    """By default this process alone, for which everything here is nothing.

    All processes make the same calls in the same order; each is an appointment that a hung process misses, which the
    watchdog of `joined_world` sees.
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
        """Say that this process has come to where all of them meet."""
        if self.size > 1:
            self._num_appointments += 1
            self.store.set(f"at/{self.rank}", str(self._num_appointments))

    def sum(self, numbers: list[float]) -> list[float]:
        """The sums over processes, the same in all of them."""
        if self.size == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.float64)
        self.arrive()
        distributed.all_reduce(total)
        return total.tolist()

    def first(self, make: Callable[[], T], patient: bool = False) -> T:
        """What `make` returns in the first process, in all of them.

        If it raises a UserError or an OSError there, the others raise ToldElsewhereError. `patient`: however long it
        takes; otherwise it is a hang after the usual time.
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
            self.store.wait([key], VERY_LONG)
        self.arrive()
        distributed.broadcast_object_list(said, src=0)
        if failure is not None:
            raise failure
        if said[1] is not None:
            raise ToldElsewhereError(said[1])
        return said[0]

    def one_first(self, make: Callable[[], T]) -> T:
        """What `make` returns, in each machine first in one process and then, from what that left on disk, in the rest.

        However long that takes. Where it raises a UserError, all processes of the machine do.
        """
        if self.size == 1:
            return make()
        self._num_waits += 1
        key = f"made/{os.environ.get('GROUP_RANK', '0')}/{self._num_waits}"
        if self.local_rank > 0:
            self.store.wait([key], VERY_LONG)
            if said := self.store.get(key).decode():
                raise ToldElsewhereError(said)
            return make()
        try:
            made = make()
        except UserError as error:
            self.store.set(key, str(error))
            raise
        self.store.set(key, "")
        return made

    def gather(self, value: T) -> list[T]:
        """What each process has, in the order of their ranks, in all of them."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self.arrive()
        distributed.all_gather_object(values, value)
        return values

    def share(self, items: list[T]) -> list[T]:
        """Of what all have, this process's part: every `size`-th. `merge` puts the parts together again."""
        return items[self.rank :: self.size]

    def broadcast(self, tensor: Tensor) -> Tensor:
        """The first process's tensor, written into that of the others, which is contiguous and of the same shape."""
        if self.size > 1:
            self.arrive()
            distributed.broadcast(tensor, src=0)
        return tensor


ALONE = World()


def merge(parts: list[list[T]]) -> list[T]:
    """The whole list of which process r has `parts[r]`, by `World.share`."""
    merged: list[Any] = [None] * sum(len(part) for part in parts)
    for rank, part in enumerate(parts):
        merged[rank :: len(parts)] = part
    return merged


@contextmanager
def joined_world(device: torch.device, timeout_minutes: float) -> Iterator[World]:
    """The world that `torchrun` started this process in, or `ALONE`.

    A process that keeps the others waiting for `timeout_minutes` is named, and all end with status 1, so that
    `torchrun --max-restarts` can begin again from the newest checkpoint. Raises ToldElsewhereError where another
    process ends before its time.
    """
    size = launch.num_processes()
    if size == 1:
        yield ALONE
        return
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    world = World(launch.rank(), size, launch.local_rank())
    world.store = _connect(world, backend)
    # The group waits longer than the watchdog, which knows who is missing.
    set_group_timeout(timedelta(minutes=2 * timeout_minutes))
    world.store.set(f"host/{world.rank}", f"{socket.gethostname()}, process {os.getpid()}")
    world.store.set(f"pulse/{world.rank}", "0")
    world.arrive()
    distributed.barrier()
    done = threading.Event()
    threading.Thread(target=_watch, args=(world, timeout_minutes, done), daemon=True).start()
    try:
        yield world
    except RuntimeError as error:
        if not _is_loss_of_another(error):
            raise
        if "timed out" in str(error).lower():  # the watchdog knows better, where it knows who
            raise UserError(
                f"Process {world.rank} of {world.size} has waited {2 * timeout_minutes:g} minutes for another one. The "
                "checkpoints are whole; go on with --resume auto."
            ) from error
        raise ToldElsewhereError(f"another process ended before its time ({error})") from error
    finally:
        done.set()
        with suppress(RuntimeError):  # of processes that are gone
            distributed.destroy_process_group()


def _connect(world: World, backend: str) -> Store:
    """Join torch's process group; returns what the processes share beside it.

    Now and then gloo's connections do not come about and it waits for them in vain; so it waits for a minute, and all
    of them try once more.
    """
    store, _, _ = next(rendezvous("env://", timeout=VERY_LONG))
    for attempt in range(CONNECT_TRIES):
        tried = PrefixStore(f"tmt/{launch.num_restarts()}/{attempt}", store)
        tried.set(f"here/{world.rank}", "")
        tried.wait([f"here/{rank}" for rank in range(world.size)], VERY_LONG)
        try:
            distributed.init_process_group(
                backend, store=PrefixStore("group", tried), rank=world.rank, world_size=world.size,
                timeout=timedelta(seconds=CONNECT_SECONDS),
            )  # fmt: skip
            tried.set(f"connected/{world.rank}", "")
            tried.wait(
                [f"connected/{rank}" for rank in range(world.size)], timedelta(seconds=CONNECT_SECONDS + MARGIN_SECONDS)
            )
            return tried
        except RuntimeError as error:
            if distributed.is_initialized():
                distributed.destroy_process_group()
            if attempt + 1 == CONNECT_TRIES:
                raise UserError(
                    f"Process {world.rank} of {world.size} could not connect with the others ({error}). Can these "
                    "machines reach each other? GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the network to use."
                ) from error
            print(f"tmt: process {world.rank} of {world.size} could not connect, and tries again", file=sys.stderr)
    raise AssertionError


def mark_beginning() -> None:
    """Remember, as long as this `torchrun` lives, that its training has begun: see `has_begun_before`."""
    if launch.num_processes() > 1:
        _store().set("tmt/begun", "")


def has_begun_before() -> bool:
    """Whether this is a restart, by `torchrun --max-restarts`, of a training that had begun."""
    return launch.num_restarts() > 0 and _store().check(["tmt/begun"])


def _store() -> TCPStore:
    """What the processes share beside their collective calls. That of torchrun outlives a restart."""
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def _is_loss_of_another(error: RuntimeError) -> bool:
    """Whether a collective call failed for want of a process that is gone: gloo says so in words only."""
    words = ("timed out", "connection closed", "connection reset", "broken pipe", "socket closed", "connection refused")
    return isinstance(error, distributed.DistError) or any(word in str(error).lower() for word in words)


def _watch(world: World, timeout_minutes: float, done: threading.Event) -> None:
    """End this process where another has been late for so long; one of those that are not says who is.

    Late is who does not arrive where another one waits, and who is not alive: this very thread of each says that it is.
    """
    heard: dict[str, tuple[str, float]] = {}  # of each rank: its place, its pulse; and since when they are the same
    beats = 0
    while not done.wait(LOOK_EVERY_SECONDS):
        beats += 1
        try:
            world.store.set(f"pulse/{world.rank}", str(beats))
            keys = [f"{what}/{rank}" for what in ("at", "pulse") for rank in range(world.size)]
            found = [value.decode() for value in world.store.multi_get(keys)]
        except RuntimeError:  # the store went with the process that kept it; torchrun sees that
            return
        now = time.monotonic()
        for key, value in zip(keys, found, strict=True):
            if key not in heard or heard[key][0] != value:
                heard[key] = value, now
        furthest = max(int(value) for value in found[: world.size])
        late = [
            rank
            for rank in range(world.size)
            for what in ("at", "pulse")
            if now - heard[f"{what}/{rank}"][1] > 60 * timeout_minutes
            and (what == "pulse" or int(heard[f"at/{rank}"][0]) < furthest)
        ]
        if late and world.rank not in late:
            if world.rank == min(set(range(world.size)) - set(late)):
                who = ", ".join(f"{rank} ({world.store.get(f'host/{rank}').decode()})" for rank in sorted(set(late)))
                print(
                    f"tmt: process {who} of {world.size} has kept the others waiting for {timeout_minutes:g} minutes "
                    "(training.timeout_minutes). All stop; the checkpoints are whole.",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
            os._exit(1)
