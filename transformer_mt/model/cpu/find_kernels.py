"""Finds the passes that numba compiles for training on a CPU, where numba works."""

from types import ModuleType

import torch

from transformer_mt.machine.numba_modules import needs_numba


@needs_numba
def loaded_kernels() -> ModuleType:
    """`kernels.py`."""
    from transformer_mt.model.cpu import kernels

    return kernels


def kernels_for(dtype: torch.dtype) -> ModuleType | None:
    """`kernels.py` where it has passes over numbers of this type; None too while torch compiles."""
    kernels = None if torch.compiler.is_compiling() else loaded_kernels()
    return kernels if kernels is not None and dtype in kernels.DTYPES else None
