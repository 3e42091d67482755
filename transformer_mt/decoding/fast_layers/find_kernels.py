"""Finds the passes that numba compiles for a search on a CPU, where numba works and there is enough work for them."""

from types import ModuleType

import torch
from torch import Tensor

from transformer_mt.machine.numba_modules import needs_numba

WORTH_LOADING = 512  # hypotheses in one call; for fewer, loading numba takes longer than it saves: half a second, once
FEWEST_ROWS = 8  # of fewer rows, torch's own operations are as fast

_in_use: ModuleType | None = None


@needs_numba
def step_kernels() -> ModuleType:
    """`step_kernels.py`; None where numba does not work."""
    from transformer_mt.decoding.fast_layers import step_kernels

    return step_kernels


def use_kernels(num_hypotheses: int) -> None:
    """Take compiled passes from now on in this process and its copies, if a call searches so many hypotheses that they
    are worth loading. Results may differ in their last bits, as they do with the size of a batch.
    """
    global _in_use
    if num_hypotheses >= WORTH_LOADING:
        _in_use = step_kernels()


def kernels_for(x: Tensor, num_rows: int) -> ModuleType | None:
    """`step_kernels.py` for so many rows of numbers like these; None where torch is to do the work."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or num_rows < FEWEST_ROWS:
        return None
    return _in_use
