"""Reads from the environment how many processes train together, and which of them this is. Loads no torch."""

import os
import sys
import time

from transformer_mt.errors import ToldElsewhereError, UserError

PATIENCE = 20  # seconds within which another process of the machine meets the same error
NEEDED = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def num_processes() -> int:
    """How many were started; 1 without `torchrun`. Raises UserError where the environment is incomplete, or
    counts this one beyond the others, which would wait for it in vain.
    """
    size = _number("WORLD_SIZE", 1)
    if size > 1 and (missing := [name for name in NEEDED if name not in os.environ]):
        raise UserError(
            f"WORLD_SIZE is {size}, and {', '.join(missing)} is not set. Start several processes with torchrun, which "
            "sets all of them."
        )
    if rank() >= size > 1:
        raise UserError(
            f"RANK is {rank()} of a WORLD_SIZE of {size}: ranks are counted from 0. Start several processes with "
            "torchrun, which sets both."
        )
    return size


def rank() -> int:
    """Which of all processes this is, from 0."""
    return _number("RANK", 0)


def local_rank() -> int:
    """Which of the processes of this machine this is, from 0."""
    return _number("LOCAL_RANK", 0)


def num_local_processes() -> int:
    """How many there are on this machine, where the environment says it; else 1."""
    return _number("LOCAL_WORLD_SIZE", 1)


def is_under_torchrun() -> bool:
    """Whether `torchrun` started this process: then it keeps a store that outlives the process."""
    return all(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"))


def let_first_speak() -> None:
    """Leave standard output to the first of all processes, for the rest of their lives."""
    if num_processes() > 1 and rank() > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, for good


def told_once(error: UserError) -> UserError:
    """What to raise for an error that all processes of a machine run into before they know of each other.

    Under `torchrun` the end of one process ends them all. So the first process of a machine speaks, and the others wait
    to be ended. After `PATIENCE` seconds without that, the error is their own, and they tell it.
    """
    if num_processes() == 1 or local_rank() == 0:
        return error
    if not is_under_torchrun():
        return ToldElsewhereError(str(error))
    time.sleep(PATIENCE)
    return error


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise UserError(f"The environment's {name} is {text!r}, which is no number. Start with torchrun, or unset it.")
    return int(text or default)
