"""Memory: when it has run out, how what is cached of it is given back, and how a CPU keeps what it has freed."""

import ctypes
import gc
import sys

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # names and numbers of glibc's malloc.h

# How allocators say it that have no exception of their own: torch's for the CPU (Linux, Windows), mps, cuBLAS, C++.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whichever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


def free_cached_memory(device: torch.device) -> None:
    """Give back what is no longer used, cycles and the allocator's own reserve, so that the next try finds it whole."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed instead of handing it back to the system; True where that could be asked for.

    Activations are freed and allocated again every step. By default each large one is a fresh mapping, and the kernel
    zeroes its pages anew, which takes a good part of a step. Costs nothing but that memory stays at its peak while the
    process lives. Elsewhere than on glibc nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
