"""Whether Triton's kernels can be had on a device."""

import functools
import logging
from typing import Any

import torch

_OLDEST = (8, 0)  # the oldest GPU for whose matrix units the kernels are written


def _kernels() -> Any:
    """`dropout_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import dropout_kernels

    return dropout_kernels


@functools.cache
def triton_works(device: torch.device) -> bool:
    """Whether Triton can start a kernel there, for which it needs a C compiler. The reason why not is told once."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    if torch.cuda.get_device_capability(device) < _OLDEST:
        return False
    try:
        decisions, seed = (torch.zeros(8, dtype=torch.int64, device=device) for _ in range(2))
        _kernels().keep[(1,)](decisions, seed, 1, 8, block=1024)
    except Exception as error:  # its errors have no class in common
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        told = "Triton does not work here (%s): batches keep their padding, which is slower."
        logging.getLogger(__name__).warning(told, reason)
        return False
    return True
