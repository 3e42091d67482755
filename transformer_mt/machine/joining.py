"""How this process joins the others of its `torchrun`, and what `torchrun` remembers of earlier processes.

`processes.py` is imported only where it is needed, since torch may be built without `torch.distributed`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from transformer_mt.machine import launch
from transformer_mt.machine.world import ALONE, World


@contextmanager
def joined_world(device: torch.device, timeout_minutes: float) -> Iterator[World]:
    """The world of the processes that `torchrun` started, as `processes.joined` makes it; `ALONE` for one process."""
    if launch.num_processes() == 1:
        yield ALONE
        return
    from transformer_mt.machine.processes import joined

    with joined(device, timeout_minutes) as world:
        yield world


def is_restart(of: str) -> bool:
    """Whether a process of this `torchrun` called `mark_beginning(of)` before; `torchrun` outlives its processes."""
    if not launch.is_under_torchrun():
        return False
    from transformer_mt.machine.processes import shared_store

    return shared_store().check([f"tmt/begun/{of}"])


def mark_beginning(of: str) -> None:
    """Let this `torchrun` remember, as long as it lives, that `of` has begun."""
    if launch.is_under_torchrun():
        from transformer_mt.machine.processes import shared_store

        shared_store().set(f"tmt/begun/{of}", "")
