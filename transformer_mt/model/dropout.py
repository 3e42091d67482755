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
    draws = np.random.SFC64(seed).random_raw(-(-shape.numel() // 4)).view(np.int16)[: shape.numel()]
    kept = draws >= _dropped_levels(p) - _LEVELS // 2  # numpy compares small integers five times as fast as torch
    return torch.from_numpy(kept).view(shape)


def keep_factors(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """What dropout multiplies by: 0 where `keep_mask` drops, else 1 / (1 - p)."""
    kept = 1 - _dropped_levels(p) / _LEVELS
    return keep_mask(shape, p).view(torch.uint8).to(dtype).mul_(1 / kept)


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero an element with probability p, scale the rest by 1 / (1 - p). Same shape."""
    if p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return x * keep_factors(x.shape, p, x.dtype)


def add_dropout(x: Tensor, y: Tensor, p: float) -> Tensor:
    """x + dropout(y, p); on a CPU in one pass over each, where they are of one type."""
    if p == 0 or y.device.type != "cpu" or x.dtype != y.dtype:
        return x + dropout(y, p)
    return _AddProduct.apply(x, y, keep_factors(y.shape, p, y.dtype))


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """dropout(relu(x), p); on a CPU without keeping what was dropped: it is where the result is zero."""
    if p == 0 or x.device.type != "cpu":
        return dropout(F.relu(x), p)
    return _ReluProduct.apply(x, keep_factors(x.shape, p, x.dtype), 1 - _dropped_levels(p) / _LEVELS)


class _AddProduct(torch.autograd.Function):
    """x + y * factors, of which torch's own gradient would go over the factors twice."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return torch.addcmul(x, y, factors)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad_outputs[0], grad_outputs[0] * ctx.saved_tensors[0], None


class _ReluProduct(torch.autograd.Function):
    """relu(x) * factors, which are zero or 1 / kept."""

    @staticmethod
    def forward(ctx, x: Tensor, factors: Tensor, kept: float) -> Tensor:
        result = x.relu().mul_(factors)
        ctx.save_for_backward(result)
        ctx.kept = kept
        return result

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        passed = torch.ops.aten.threshold_backward(grad_outputs[0], ctx.saved_tensors[0], 0)
        return passed.mul_(1 / ctx.kept), None, None


def _dropped_levels(p: float) -> int:
    return min(round(p * _LEVELS), _LEVELS - 1)


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
