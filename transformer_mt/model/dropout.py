"""Dropout (Srivastava et al. 2014). On a CPU `cpu/dropout.py` draws what is kept, elsewhere torch does."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.cpu.dropout import dropped, dropped_added, relu_dropped


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero an element with probability p, scale the rest by 1 / (1 - p). Same shape."""
    if p == 0:
        return x
    return dropped(x, p) if _is_ours(x) else F.dropout(x, p)


def add_dropout(x: Tensor, y: Tensor, p: float) -> Tensor:
    """x + dropout(y, p); on a CPU in one pass."""
    if p == 0 or not _is_ours(y) or x.dtype not in (y.dtype, torch.float32) or x.shape != y.shape:
        return x + dropout(y, p)
    return dropped_added(x, y, p)


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """dropout(relu(x), p); on a CPU without keeping what was dropped: it is where the result is zero."""
    if p == 0 or not _is_ours(x):
        return dropout(F.relu(x), p)
    return relu_dropped(x, p)


def _is_ours(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


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
