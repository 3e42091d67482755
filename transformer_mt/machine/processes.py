"""How the processes of a training come together, and the watch over each other that they keep."""

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage], documented there
from torch.distributed.rendezvous import rendezvous

from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine import launch
from transformer_mt.machine.workers import WATCH
from transformer_mt.machine.world import LOOK_SECONDS, World

WATCH_SECONDS = 2.0
CONNECT_TRIES = 3
CONNECT_SECONDS = 60
MARGIN_SECONDS = 10
STORE_TIMEOUT = timedelta(minutes=5)
# torch has it under a public name from 2.15 on, and warns of the other.
set_group_timeout = getattr(distributed, "set_timeout", None) or distributed_c10d._set_pg_timeout


@contextmanager
def joined(device: torch.device, timeout_minutes: float) -> Iterator[World]:
    """The world of the processes that the environment names.

    A process that keeps the others waiting for `timeout_minutes` is named, and all end with status 1, so that
    `torchrun --max-restarts` can begin again from the newest checkpoint. Raises UserError where another process is
    lost, and ToldElsewhereError where that one ended with a message of its own.

    NCCL's members leave together or wait: one that goes by an exception on a GPU stays a member, for its process to
    end as `cli.main` ends it.
    """
    backend = "gloo"
    if device.type == "cuda":
        backend = "cpu:gloo,cuda:nccl"
    world = World(launch.rank(), launch.num_processes(), launch.local_rank())
    prefix = _connect(world, backend)
    # A connection keeps its lock while it waits, so the watch has one of its own.
    world.store, watched = (PrefixStore(prefix, shared_store()) for _ in range(2))
    done = threading.Event()
    may_leave = device.type != "cuda"  # gloo lets each go by itself
    try:
        # The group waits longer than the watch, which knows who is missing.
        set_group_timeout(timedelta(minutes=2 * timeout_minutes))
        world.store.set(f"host/{world.rank}", f"{socket.gethostname()}, process {os.getpid()}")
        world.store.set(f"pulse/{world.rank}", "0")
        world.arrive()
        distributed.barrier()
        arguments = world, watched, timeout_minutes, done
        threading.Thread(target=_watch, args=arguments, name=WATCH, daemon=True).start()
        yield world
        may_leave = True
    except BaseException as error:
        if isinstance(error, RuntimeError) and _is_of_processes(error):
            raise _lost(world, error) from error
        with suppress(RuntimeError):
            world.store.set("left", "")
        raise
    finally:
        done.set()
        if may_leave:
            with suppress(RuntimeError):  # of processes that are gone
                distributed.destroy_process_group()


def shared_store() -> TCPStore:
    """A connection to what all processes read and write. That of torchrun outlives them."""
    return TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=STORE_TIMEOUT
    )  # fmt: skip


def _connect(world: World, backend: str) -> str:
    """Join torch's process group; returns the prefix of what these processes, and no earlier ones, share in the store.

    Now and then gloo's connections do not come about and it waits for them in vain; so it waits for a minute, and all
    of them try once more.
    """
    hosted = next(rendezvous("env://", timeout=STORE_TIMEOUT))  # where torchrun has no store, the first process has
    for attempt in range(CONNECT_TRIES):
        store = shared_store()
        prefix = _call_together(world, store)
        group = PrefixStore(prefix, store)
        try:
            distributed.init_process_group(
                backend, store=PrefixStore("group", group), rank=world.rank, world_size=world.size,
                timeout=timedelta(seconds=CONNECT_SECONDS),
            )  # fmt: skip
            group.set(f"connected/{world.rank}", "")
            connected = [f"connected/{rank}" for rank in range(world.size)]
            group.wait(connected, timedelta(seconds=CONNECT_SECONDS + MARGIN_SECONDS))
            return prefix
        except RuntimeError as error:
            if distributed.is_initialized():
                distributed.destroy_process_group()
            if attempt + 1 == CONNECT_TRIES:
                raise UserError(
                    f"Process {world.rank} of {world.size} could not connect with the others ({error}). Can these "
                    "machines reach each other? GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the network to use."
                ) from error
            print(f"tmt: process {world.rank} of {world.size} could not connect, and tries again", file=sys.stderr)
    raise AssertionError(hosted)


def _call_together(world: World, store: Store) -> str:
    """A prefix for those who are here now, whatever earlier processes left in the store. Waits for all, without end.

    Restarts are not counted alike on all machines, so nothing is named by their number. Each process says who it is;
    the first one writes a list and everyone on it says so. Who is started anew in between changes the list.
    """
    me = secrets.token_hex(8)
    store.set(f"tmt/here/{world.rank}", me)
    everyone = [f"tmt/here/{rank}" for rank in range(world.size)]
    called: list[str] = []
    prefix = agreed = ""
    while True:
        if world.is_first and store.check(everyone):
            here = [name.decode() for name in store.multi_get(everyone)]
            if here != called:
                called, prefix = here, f"tmt/{secrets.token_hex(8)}"
                store.set("tmt/call", json.dumps([prefix, called]))
            elif prefix == agreed and store.check([f"{prefix}/agreed/{rank}" for rank in range(world.size)]):
                store.set(f"{prefix}/go", "")
        if store.check(["tmt/call"]):
            now, names = json.loads(store.get("tmt/call"))
            if now != agreed and names[world.rank : world.rank + 1] == [me]:
                agreed = now
                store.set(f"{agreed}/agreed/{world.rank}", "")
            if agreed and now == agreed and store.check([f"{agreed}/go"]):
                return agreed
        time.sleep(LOOK_SECONDS)


def _is_of_processes(error: RuntimeError) -> bool:
    """Whether the processes' talk with each other failed; gloo says so in words only."""
    words = ("timed out", "connection closed", "connection reset", "broken pipe", "socket closed", "connection refused")
    return isinstance(error, distributed.DistError) or any(word in str(error).lower() for word in words)


def _lost(world: World, error: RuntimeError) -> UserError:
    """What to say of a failed call: nothing where another process ended with a message, or is about to."""
    first_line = str(error).split("\n")[0]
    for _ in range(int(2 / LOOK_SECONDS)):
        try:
            if world.store.check(["left"]):
                return ToldElsewhereError(f"another process ended before its time ({first_line})")
        except RuntimeError:
            break
        time.sleep(LOOK_SECONDS)
    return UserError(
        f"Process {world.rank} of {world.size} has lost the others ({first_line}). The checkpoints are whole; go on "
        "with --resume auto."
    )


def _watch(world: World, store: Store, timeout_minutes: float, done: threading.Event) -> None:
    """End this process where another has been late for so long; one of those that are not says who is.

    Late is who does not arrive where another one waits, and who is not alive: this very thread of each says that it
    is. Looks are counted, not seconds, so that a job that was suspended as a whole has missed nothing.
    """
    most = 60 * timeout_minutes / WATCH_SECONDS
    ranks = range(world.size)
    places, pulses = [-1] * world.size, [-1] * world.size
    behind, silent = [0] * world.size, [0] * world.size  # looks since another one waits for it; since it was heard
    beats = 0
    while not done.wait(WATCH_SECONDS):
        beats += 1
        try:
            store.set(f"pulse/{world.rank}", str(beats))
            found = [int(n) for n in store.multi_get([f"{what}/{rank}" for what in ("at", "pulse") for rank in ranks])]
        except RuntimeError:  # the store went with the process that kept it; torchrun sees that
            return
        for rank in ranks:
            waited_for = found[rank] == places[rank] and found[rank] < max(found[: world.size])
            behind[rank] = behind[rank] + 1 if waited_for else 0
            silent[rank] = silent[rank] + 1 if found[world.size + rank] == pulses[rank] else 0
        places, pulses = found[: world.size], found[world.size :]
        late = [rank for rank in ranks if max(behind[rank], silent[rank]) > most]
        if late and world.rank not in late:
            if world.rank == min(set(ranks) - set(late)):
                who = ", ".join(f"{rank} ({store.get(f'host/{rank}').decode()})" for rank in late)
                print(
                    f"tmt: process {who} of {world.size} has kept the others waiting for {timeout_minutes:g} minutes "
                    "(training.timeout_minutes). All stop; the checkpoints are whole.",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
            else:
                time.sleep(2 * WATCH_SECONDS)  # torchrun ends all when one ends: let the one speak first
            os._exit(1)
