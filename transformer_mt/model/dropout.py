"""Dropout (Srivastava et al. 2014), with a mask that costs less than the layer it falls on.

On a CPU torch draws one 64-bit number an element from a serial generator, which took 40 % of a training step at
dropout 0.3. Here one such number makes four elements, and comes from a faster generator.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16  # a probability is rounded to one of so many, and the scale goes by the rounded one


def keep_mask(shape: torch.Size, p: float) -> Tensor:
    """A tensor of `shape` on the CPU, True with probability 1 - p to the nearest of 65,536 levels.

    A function of torch's global CPU generator, which moves on by one draw.
    """
    seed = int(torch.randint(2**63 - 1, ()))
    draws = np.random.SFC64(seed).random_raw(-(-shape.numel() // 4)).view(np.int16)
    levels = torch.from_numpy(draws[: shape.numel()]).view(shape)
    return levels >= _dropped_levels(p) - _LEVELS // 2


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero an element with probability p, scale the rest by 1 / (1 - p). Same shape."""
    if p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    kept = 1 - _dropped_levels(p) / _LEVELS
    return x * (keep_mask(x.shape, p) * torch.tensor(1 / kept, dtype=x.dtype))


def _dropped_levels(p: float) -> int:
    return min(round(p * _LEVELS), _LEVELS - 1)


class Dropout(nn.Module):
    """`dropout` in training, nothing else."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return dropout(x, self.p) if self.training else x
