"""How the processes of a training come together, and how they watch over each other."""

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
# From 2.15 on torch has a public name for it, and warns of the private one.
set_group_timeout = getattr(distributed, "set_timeout", None) or distributed_c10d._set_pg_timeout


@contextmanager
def joined(device: torch.device, timeout_minutes: float) -> Iterator[World]:
    """The world of the processes that the environment names.

    A process that keeps the others waiting for `timeout_minutes` is named, and all end with status 1, so that
    `torchrun --max-restarts` can begin again from the newest checkpoint. Raises UserError where another process is
    lost, and ToldElsewhereError where the lost process has told its error.

    Members of an NCCL group that leave wait for the others. So a process that raises an exception on a GPU stays a
    member until `cli.main` ends it.
    """
    backend = "gloo"
    if device.type == "cuda":
        backend = "cpu:gloo,cuda:nccl"
    world = World(launch.rank(), launch.num_processes(), launch.local_rank())
    # Without torchrun's store the first process keeps one, for as long as all are members.
    hosted = _meet(world)
    prefix = _connect(world, backend)
    # A connection keeps its lock while it waits, so the watch has a connection of its own.
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
        world.arrive()
        distributed.barrier()  # the others may still ask the store that this process keeps
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
            with suppress(RuntimeError):  # the other processes may be gone
                distributed.destroy_process_group()
        del hosted


def shared_store() -> TCPStore:
    """A connection to the store that all processes read and write. The store of torchrun outlives them."""
    return TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=STORE_TIMEOUT
    )  # fmt: skip


def _meet(world: World) -> Store:
    """The store at the address that the environment names, once it can be reached. UserError where it cannot."""
    try:
        return next(rendezvous("env://", timeout=STORE_TIMEOUT))[0]
    except (RuntimeError, ValueError) as error:
        first_line = str(error).split("\n")[0]
        raise UserError(
            f"Process {world.rank} of {world.size} could not meet the others at {os.environ['MASTER_ADDR']}, port "
            f"{os.environ['MASTER_PORT']} ({first_line}). Give all of them the address of the machine of process 0 as "
            "MASTER_ADDR, and a port that is free there as MASTER_PORT; or start them with torchrun, which finds one."
        ) from error


def _connect(world: World, backend: str) -> str:
    """Join torch's process group. Returns the prefix under which these processes, and no earlier ones, use the store.

    Now and then gloo waits in vain for its connections. So it waits for a minute, and then all processes try again.
    """
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
    raise AssertionError("the last try has raised")


def _call_together(world: World, store: Store) -> str:
    """A prefix for the processes that are here now, whatever earlier ones left in the store. Waits for all, without
    end.

    Machines do not count restarts alike, so no name has their number. Each process says who it is. The first one writes
    a list, and everyone on the list agrees to it. A process that is started anew in between changes the list.
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
    """Whether communication between the processes failed; gloo says so in words only."""
    words = ("timed out", "connection closed", "connection reset", "broken pipe", "socket closed", "connection refused")
    return isinstance(error, distributed.DistError) or any(word in str(error).lower() for word in words)


def _lost(world: World, error: RuntimeError) -> UserError:
    """The error for a failed call; ToldElsewhereError where another process ended with a message, or is about to."""
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
    """End this process where another one is late for so long. The first process that is not late names those that are.

    A process is late that does not arrive where another one waits, and one whose own watch no longer says that it is
    alive. The watch counts its looks, not seconds, so that a job that was suspended as a whole has missed nothing.
    """
    most = 60 * timeout_minutes / WATCH_SECONDS
    ranks = range(world.size)
    places, pulses = [-1] * world.size, [-1] * world.size
    behind = [0] * world.size  # looks for which another one has waited for it
    silent = [0] * world.size  # looks for which it was not heard
    beats = 0
    while not done.wait(WATCH_SECONDS):
        beats += 1
        try:
            store.set(f"pulse/{world.rank}", str(beats))
            found = [int(n) for n in store.multi_get([f"{what}/{rank}" for what in ("at", "pulse") for rank in ranks])]
        except RuntimeError:  # the process that kept the store is gone, which torchrun sees
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
                time.sleep(2 * WATCH_SECONDS)  # torchrun ends all when one ends: let the first one speak before
            os._exit(1)
