"""Asking for modules that need numba, which not every Python and processor has: whoever asks has another way to go."""

import functools
import logging
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def has_numba() -> bool:
    """Whether it is installed."""
    return find_spec("numba") is not None


def needs_numba(load: Callable[[], T]) -> Callable[[], T | None]:
    """Decorates a function that imports a module and returns it. The new function does so in its first call.

    It returns None without numba, and also where the import fails, which is told once.
    """

    @functools.cache
    def loaded() -> T | None:
        modules: list[T] = []
        return modules[0] if has_numba() and tried(lambda: modules.append(load())) else None

    return loaded


def run_loop(compiled: ModuleType | None, kernel: Callable[..., None], *arguments: Any) -> None:
    """Run a loop over contiguous numpy arrays and numbers: as it is compiled, under the same name, or else as Python
    runs it.
    """
    if compiled is None:
        # Python reads and writes a memoryview some times faster than an array, and its numbers are Python's own.
        kernel(*(a.data if isinstance(a, np.ndarray) else a for a in arguments))
    else:
        getattr(compiled, kernel.__name__)(*arguments)


def tried(work: Callable[[], object]) -> bool:
    """Whether numba could do this work. The reason why it could not is told once."""
    try:
        work()
    except Exception as error:  # numba wants another numpy, as a rule, or a library of its own, or cannot compile
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        _tell(reason)
        return False
    return True


@functools.cache
def _tell(reason: str) -> None:
    logging.getLogger(__name__).warning("numba does not work here (%s): going on without it, which is slower.", reason)
