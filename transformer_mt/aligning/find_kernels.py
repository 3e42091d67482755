"""The loops of the aligner: compiled where numba works, else as Python runs them, which takes 20 times as long."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from transformer_mt.aligning import kernels
from transformer_mt.machine.numba_modules import needs_numba, run_loop


@needs_numba
def compiled_kernels() -> ModuleType:
    """`compiled_kernels.py`; None where numba does not work."""
    from transformer_mt.aligning import compiled_kernels

    return compiled_kernels


def run_kernel(kernel: Callable[..., None], *arguments: Any) -> None:
    """Run a function of `kernels.py` on contiguous numpy arrays and numbers."""
    assert getattr(kernels, kernel.__name__) is kernel
    run_loop(compiled_kernels(), kernel, *arguments)
