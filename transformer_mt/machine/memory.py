"""Memory: how much a machine has, whether it has run out, how to give cached memory back or keep it."""

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # names and numbers of glibc's malloc.h

# Of a container's memory, with control groups of the second version and of the first.
_LIMITS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")

# The messages of allocators without an exception of their own: torch's for the CPU (Linux, Windows), mps, cuBLAS, C++.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whichever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


def memory_of_machine() -> int | None:
    """The bytes that all processes share: the machine's memory, or less where a container limits it. None where the
    system does not say.
    """
    try:
        known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no container, or one whose limit is "max"
            known.append(int(limit.read_text()))
    return min(known)


def gibibytes(num_bytes: int) -> str:
    """A number of bytes for a person to read."""
    return f"{num_bytes / 2**30:,.1f} GiB"


def free_cached_memory(device: torch.device) -> None:
    """Give back unused memory, cycles and the allocator's reserve included, so that the next try has all of it."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory instead of handing it back to the system. Returns whether glibc agreed.

    Activations are freed and allocated again every step. By default each large one is a fresh mapping, and the kernel
    zeroes its pages anew, which takes a good part of a step. The price is that the process keeps its peak of memory.
    Without glibc this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
