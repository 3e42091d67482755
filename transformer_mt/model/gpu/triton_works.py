"""Whether Triton's kernels can be had on a device."""

import functools
import logging
from typing import Any

import torch

_OLDEST = (8, 0)  # the oldest GPU for whose matrix units the kernels are written


@functools.cache
def triton_works(device: torch.device) -> bool:
    """Whether Triton can start a kernel there, for which it needs a C compiler. The reason why not is told once."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    if torch.cuda.get_device_capability(device) < _OLDEST:
        return False
    try:
        from transformer_mt.model.gpu import attention_kernels

        rows, blocks = torch.empty(2, 8, device=device), torch.zeros(1, 4, dtype=torch.int64, device=device)
        clear: Any = attention_kernels.clear
        with torch.cuda.device(device):
            clear[(1,)](rows, blocks, 0, 0, 8, 16, block=16)
    except Exception as error:  # its errors have no class in common
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        told = "Triton does not work here (%s): all goes without its kernels, and slower."
        logging.getLogger(__name__).warning(told, reason)
        return False
    return True
