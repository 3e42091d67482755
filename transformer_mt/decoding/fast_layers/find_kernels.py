"""Finds the passes that numba compiles for a search on a CPU, where numba works and the search takes them."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

import torch
from torch import Tensor

from transformer_mt.machine.numba_modules import needs_numba

_in_use: ContextVar[ModuleType | None] = ContextVar("step_kernels", default=None)


@needs_numba
def step_kernels() -> ModuleType:
    """`step_kernels.py`; None where numba does not work."""
    from transformer_mt.decoding.fast_layers import step_kernels

    return step_kernels


@contextmanager
def compiled_passes(asked: bool) -> Generator[None]:
    """Inside, `kernels_for` finds them, if asked. The call decides, so that one that is repeated has the same bits."""
    token = _in_use.set(step_kernels() if asked else None)
    try:
        yield
    finally:
        _in_use.reset(token)


def kernels_for(x: Tensor) -> ModuleType | None:
    """`step_kernels.py` for numbers like these; None where torch is to do the work."""
    return _in_use.get() if x.device.type == "cpu" and x.dtype == torch.float32 else None
