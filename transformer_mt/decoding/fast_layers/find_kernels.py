"""Finds the passes that numba compiles for a search on a CPU, where numba works and there is enough work for them."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

import torch
from torch import Tensor

from transformer_mt.machine.numba_modules import needs_numba

WORTH_LOADING = 512  # hypotheses; for fewer, loading numba takes longer than it saves: half a second, once
FEWEST_ROWS = 8  # of fewer rows, torch's own operations are as fast

_in_use: ContextVar[ModuleType | None] = ContextVar("step_kernels", default=None)


@needs_numba
def step_kernels() -> ModuleType:
    """`step_kernels.py`; None where numba does not work."""
    from transformer_mt.decoding.fast_layers import step_kernels

    return step_kernels


def are_compiled(num_batches: int, num_hypotheses: int, device: torch.device, precision: str) -> bool:
    """Whether the searches of a call take compiled passes, which this loads before processes are copies of this one.
    int8 has loaded numba in any case. A single batch has all cores, and the passes have one.
    """
    on_one_core = device.type == "cpu" and (num_batches > 1 or torch.get_num_threads() == 1)
    worth_it = on_one_core and (precision == "int8" or num_hypotheses >= WORTH_LOADING)
    return worth_it and step_kernels() is not None


@contextmanager
def compiled_passes(asked: bool) -> Generator[None]:
    """Inside, `kernels_for` finds them, if asked. The call decides, so that one that is repeated has the same bits."""
    token = _in_use.set(step_kernels() if asked else None)
    try:
        yield
    finally:
        _in_use.reset(token)


def kernels_for(x: Tensor, num_rows: int) -> ModuleType | None:
    """`step_kernels.py` for so many rows of numbers like these; None where torch is to do the work."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or num_rows < FEWEST_ROWS:
        return None
    return _in_use.get()
