"""Dropout (Srivastava et al. 2014): torch's; on a CPU with numba the passes of `cpu/dropout.py`; in a step that is
compiled for a GPU the choice of `gpu/dropout.py`, with passes that the compiler makes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.cpu.dropout import AddDropped, Dropped, ReluDropped, new_draw
from transformer_mt.model.gpu.dropout import draws_for, drop


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero an element with probability p, scale the rest by 1 / (1 - p). Same shape."""
    if p == 0:
        return x
    if draws_for(x):
        return drop(x, p)
    draw = new_draw(x, p)
    return F.dropout(x, p) if draw is None else Dropped.apply(x, draw, x.dtype)


def add_dropout(x: Tensor, y: Tensor, p: float) -> Tensor:
    """x + dropout(y, p); on a CPU with numba in one pass."""
    if p == 0 or draws_for(y) or x.dtype not in (y.dtype, torch.float32) or x.shape != y.shape:
        return x + dropout(y, p)
    draw = new_draw(y, p)
    return x + F.dropout(y, p) if draw is None else AddDropped.apply(x, y, draw)


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """dropout(relu(x), p); on a CPU with numba in one pass."""
    if p == 0:
        return F.relu(x)
    if draws_for(x):
        return drop(F.relu(x), p)
    draw = new_draw(x, p)
    return F.dropout(F.relu(x), p) if draw is None else ReluDropped.apply(x, draw)


class Dropout(nn.Module):
    """`dropout` in training, nothing else."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Any shape -> the same shape. `add_to` is what the result is added to in the same pass."""
        if add_to is not None:
            return add_dropout(add_to, x, self.p if self.training else 0.0)
        return dropout(x, self.p) if self.training else x


class ReluDropout(Dropout):
    """`relu_dropout` in training, relu else."""

    def forward(self, x: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Any shape -> the same shape."""
        assert add_to is None, "it stands inside a feed-forward, not at a sum"
        return relu_dropout(x, self.p if self.training else 0.0)
