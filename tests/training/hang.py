"""Run by `torchrun` in tests: two processes of which one is late, or only slow. The time-out is six seconds."""

import sys
import time

import torch

from transformer_mt.machine.joining import joined_world
from transformer_mt.machine.workers import may_fork
from transformer_mt.machine.world import World


def hang(world: World) -> None:
    """The second process is alive, and never comes to where the first one waits."""
    if world.rank == 1:
        time.sleep(100)


def be_patient(world: World) -> None:
    """All wait for the first one, and then a machine for its own first one, longer than the time-out."""
    assert world.first(may_fork) == (sys.platform == "linux"), "the thread that watches forbids no work on all cores"
    assert world.first(lambda: time.sleep(9) or "made", patient=True) == "made"
    assert world.one_first(lambda: time.sleep(9 if world.rank == 0 else 0) or "made") == "made"


def be_slow_together(world: World) -> None:
    """Both work for longer than the time-out, and wait for each other for less."""
    time.sleep(9 if world.rank == 0 else 11)


if __name__ == "__main__":
    with joined_world(torch.device("cpu"), timeout_minutes=0.1) as world:
        world.sum([1.0])
        {work.__name__: work for work in (hang, be_patient, be_slow_together)}[sys.argv[1]](world)
        assert world.sum([2.0]) == [4.0]
        print("together again")
