"""How this process joins the others of its `torchrun`, and what that remembers of those before them.

Apart from `processes.py`, which is imported only where it is needed: torch may be built without what that takes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from transformer_mt.machine import launch
from transformer_mt.machine.world import ALONE, World


@contextmanager
def joined_world(device: torch.device, timeout_minutes: float) -> Iterator[World]:
    """The world of the processes that `torchrun` started, this one among them, as `processes.joined` has it; `ALONE`
    where there is one process.
    """
    if launch.num_processes() == 1:
        yield ALONE
        return
    from transformer_mt.machine.processes import joined

    with joined(device, timeout_minutes) as world:
        yield world


def is_restart(of: str) -> bool:
    """Whether this `torchrun` has begun before, by `mark_beginning`, what `of` names. It outlives its processes."""
    if not launch.is_under_torchrun():
        return False
    from transformer_mt.machine.processes import shared_store

    return shared_store().check([f"tmt/begun/{of}"])


def mark_beginning(of: str) -> None:
    """Remember it as long as this `torchrun` lives."""
    if launch.is_under_torchrun():
        from transformer_mt.machine.processes import shared_store

        shared_store().set(f"tmt/begun/{of}", "")
