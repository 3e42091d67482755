"""Passes over numbers that numba compiles, where torch would need several operations.

A module that imports this one needs another way for machines without a numba that works. Compiled passes are kept on
the disk, beside their own file or in numba's folder of the user's cache. For another processor they are compiled anew.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit, set_num_threads
from numba.core import config
from numba.np.ufunc.parallel import threading_layer
from numpy.typing import NDArray
from torch import Tensor

# numba's threads where there is neither OpenMP nor TBB. They sleep, and waking them takes as long as a pass.
_SLOW_THREADS = "workqueue"
if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]: read from the environment
    raise ImportError("NUMBA_DISABLE_JIT is set")
MOST_THREADS: int = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]: read from the environment
_LOCK = threading.Lock()  # not every kind of threads may be called by two others at once
# Whether this process began as a copy of another one. It lacks the threads that numba may have started there, and
# numba would end it.
_is_copy = False


def _note_copy() -> None:
    global _LOCK, _is_copy
    _LOCK, _is_copy = threading.Lock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_copy)


def compiled(signature: str, kept: bool = True, **options: Any) -> Callable[[Callable[..., None]], Any]:
    """Decorates a function of arrays, which becomes machine code. It leaves Python's lock to others while it runs."""

    def decorated(function: Callable[..., None]) -> Any:
        if kept and os.path.isabs(os.path.expanduser("~")):  # else numba would make a folder of the name ~
            # Keeping it fails without a folder, on a full disk, and with a file that was cut short. An error of the
            # function itself is raised below.
            with contextlib.suppress(Exception):
                return njit(signature, nogil=True, error_model="numpy", cache=True, **options)(function)
        return njit(signature, nogil=True, error_model="numpy", **options)(function)

    return decorated


class ParallelPass:
    """A function of contiguous tensors and numpy's numbers, written with `numba.prange`, on as many threads as torch.

    It is compiled for the types of its arguments when it first meets them. A bfloat16 becomes a uint16, its bits.
    """

    def __init__(self, function: Callable[..., None], **options: Any) -> None:
        """`options` of numba's `njit`."""
        self._function, self._options = function, options
        self._by_kinds: dict[tuple[object, ...], Callable[..., None]] = {}

    def __call__(self, *arguments: "Tensor | np.generic") -> None:
        values = [_array(argument) if isinstance(argument, Tensor) else argument for argument in arguments]
        with _LOCK:
            if _is_copy:
                self._machine_code(values, parallel=False)(*values)
                return
            threads_of_torch = torch.get_num_threads()
            work = self._machine_code(values, parallel=True)
            set_num_threads(_num_threads())
            work(*values)
            if torch.get_num_threads() != threads_of_torch:  # numba's first start of its own changes them
                torch.set_num_threads(threads_of_torch)

    def _machine_code(self, values: "list[NDArray | np.generic]", parallel: bool) -> Callable[..., None]:
        kinds = (parallel, *((type(value), value.dtype, value.ndim) for value in values))
        if kinds not in self._by_kinds:
            signature = f"void({', '.join(map(_type_name, values))})"
            # What is kept on the disk is known by the signature alone.
            make = compiled(signature, kept=parallel, parallel=parallel, **self._options)
            self._by_kinds[kinds] = make(self._function)
        return self._by_kinds[kinds]


def _array(tensor: Tensor) -> NDArray:
    assert tensor.is_contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(np.uint16)
    return tensor.detach().numpy()


def _type_name(value: "NDArray | np.generic") -> str:
    if not isinstance(value, np.ndarray):
        return value.dtype.name
    return f"{value.dtype.name}[{':, ' * (value.ndim - 1)}::1]"


def uses_all_cores() -> bool:
    """Whether passes run on as many threads as torch. This is known once a pass has run."""
    return _num_threads() == min(torch.get_num_threads(), MOST_THREADS)


def _num_threads() -> int:
    try:
        slow = threading_layer() == _SLOW_THREADS
    except ValueError:  # nothing has been run yet
        slow = True
    return 1 if slow else min(torch.get_num_threads(), MOST_THREADS)
