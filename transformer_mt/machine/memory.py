"""A setting of the C library that a training on a CPU lives or dies by."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # names and numbers of glibc's malloc.h


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
