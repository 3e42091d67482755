"""Dropout in training on a CPU, with random numbers that cost less than the layer they fall on.

There torch draws one 64-bit number an element from a serial generator, which took 40 % of a training step at dropout
0.3. Here it is one pass of `kernels.py` where numba is installed. Elsewhere, and in numbers of other types, one such
number makes four elements and comes from a faster generator. The two ways draw different numbers.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from transformer_mt.machine.numba_modules import numba_module

_LEVELS = 2**16  # a probability is rounded to one of so many, and the scale goes by the rounded one


class Draw(Protocol):
    """Which elements of one shape are kept: each with probability 1 - p, and multiplied by 1 / (1 - p), the scale."""

    scale: float

    def factors(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """What is multiplied by: 0 or 1 / (1 - p)."""
        ...

    def times(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """x * factors, as `dtype`."""
        ...

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y * factors; x is float32, or of y's type."""
        ...

    def after_relu(self, x: Tensor) -> Tensor:
        """relu(x) * factors."""
        ...

    def through_relu(self, grad: Tensor, result: Tensor) -> Tensor:
        """The gradient of x in `after_relu`, from that of its result: where the result is 0, it is 0."""
        ...


class StoredDraw:
    """A `Draw` whose factors are kept until the gradient has come by."""

    def __init__(self, seed: int, p: float, shape: torch.Size, dtype: torch.dtype) -> None:
        dropped = min(round(p * _LEVELS), _LEVELS - 1)
        draws = np.random.SFC64(seed).random_raw(-(-shape.numel() // 4)).view(np.int16)[: shape.numel()]
        kept = draws >= dropped - _LEVELS // 2  # numpy compares small integers five times as fast as torch
        self.scale = _LEVELS / (_LEVELS - dropped)
        self.stored = torch.from_numpy(kept).view(shape).view(torch.uint8).to(dtype).mul_(self.scale)

    def factors(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        return self.stored

    def times(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return (x * self.stored).to(dtype)

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.addcmul(x, y, self.stored) if x.dtype == y.dtype else x + y * self.stored

    def after_relu(self, x: Tensor) -> Tensor:
        return x.relu().mul_(self.stored)

    def through_relu(self, grad: Tensor, result: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(grad, result, 0).mul_(self.scale)


def new_draw(shape: torch.Size, p: float, dtype: torch.dtype) -> Draw:
    """For elements of `shape` and `dtype` on the CPU, by torch's global generator, which moves on by one draw."""
    seed = int(torch.randint(2**63 - 1, ()))
    kernels = None if torch.compiler.is_compiling() else numba_module("transformer_mt.model.cpu.kernels")
    if kernels is None or dtype not in kernels.DTYPES:
        return StoredDraw(seed, p, shape, dtype)
    return kernels.CompiledDraw(seed, p)


def draws_with_numba(device: torch.device) -> bool:
    """Which of the two ways it is, for whoever wants to draw the same numbers again."""
    return device.type == "cpu" and numba_module("transformer_mt.model.cpu.kernels") is not None


def keep_factors(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """What dropout multiplies by: 0 with probability p, else 1 / (1 - p)."""
    return new_draw(shape, p, dtype).factors(shape, dtype)


def dropped(x: Tensor, p: float) -> Tensor:
    """`dropout.dropout` of x on the CPU."""
    return _Dropped.apply(x, new_draw(x.shape, p, x.dtype), x.dtype)


def dropped_added(x: Tensor, y: Tensor, p: float) -> Tensor:
    """`dropout.add_dropout` in one pass: x and y of one shape on the CPU, x float32 or of y's type."""
    return _AddDropped.apply(x, y, new_draw(y.shape, p, y.dtype))


def relu_dropped(x: Tensor, p: float) -> Tensor:
    """`dropout.relu_dropout` of x on the CPU, without keeping what was dropped: it is where the result is zero."""
    return _ReluDropped.apply(x, new_draw(x.shape, p, x.dtype))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, draw: Draw, dtype: torch.dtype) -> Tensor:
        ctx.draw, ctx.dtype = draw, x.dtype
        return draw.times(x, dtype)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return _Dropped.apply(grad_outputs[0], ctx.draw, ctx.dtype), None, None  # as often as it is asked for


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, draw: Draw) -> Tensor:
        ctx.draw, ctx.dtype = draw, y.dtype
        return draw.added(x, y)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad_outputs[0], _Dropped.apply(grad_outputs[0], ctx.draw, ctx.dtype), None


class _ReluDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, draw: Draw) -> Tensor:
        result = draw.after_relu(x)
        ctx.draw = draw
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (grad,), (result,) = grad_outputs, ctx.saved_tensors
        if grad.requires_grad:  # a gradient of the gradient is asked for
            return grad * (result > 0) * ctx.draw.scale, None
        return ctx.draw.through_relu(grad, result), None
