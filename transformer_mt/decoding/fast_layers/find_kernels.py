"""Finds the passes that numba compiles for a search on a CPU, where numba works and there is enough work for them."""

from types import ModuleType

import torch
from torch import Tensor

from transformer_mt.machine.numba_modules import needs_numba

# With fewer, loading numba takes longer than it saves: half a second, once.
FEWEST_ROWS = 8


@needs_numba
def step_kernels() -> ModuleType:
    """`step_kernels.py`; None where numba does not work."""
    from transformer_mt.decoding.fast_layers import step_kernels

    return step_kernels


def kernels_for(x: Tensor, num_rows: int) -> ModuleType | None:
    """`step_kernels.py` for so many rows of numbers like these."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or num_rows < FEWEST_ROWS:
        return None
    return step_kernels()
