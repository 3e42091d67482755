"""Modules that need numba, which not every Python and processor has: whoever asks for one has another way to go."""

import functools
import importlib
import logging
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType


def has_numba() -> bool:
    """Whether it is installed."""
    return find_spec("numba") is not None


@functools.cache
def numba_module(name: str) -> ModuleType | None:
    """The module of this full name; None without numba, and, which is told once, where it does not work."""
    if not has_numba():
        return None
    modules: list[ModuleType] = []
    return modules[0] if tried(lambda: modules.append(importlib.import_module(name))) else None


def tried(work: Callable[[], object]) -> bool:
    """Whether numba could do this; why not, is told once."""
    try:
        work()
    except Exception as error:  # it wants another numpy, as a rule, or a library of its own, or cannot compile
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        _tell(reason)
        return False
    return True


@functools.cache
def _tell(reason: str) -> None:
    logging.getLogger(__name__).warning("numba does not work here (%s): going on without it, which is slower.", reason)
