"""Dropout in training on a CPU as numba does it, in passes that cost less than the layer they fall on.

torch draws one 64-bit number an element from a serial generator there, which took 40 % of a training step at dropout
0.3. Elsewhere, without numba, and for numbers of other types torch's own dropout is used. It draws different numbers.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transformer_mt.model.cpu.find_kernels import kernels_for, loaded_kernels

if TYPE_CHECKING:
    from transformer_mt.model.cpu.kernels import CompiledDraw


def new_draw(x: Tensor, p: float) -> "CompiledDraw | None":
    """A draw for the elements of x, by torch's global generator; None where dropout is left to torch."""
    kernels = kernels_for(x.dtype) if x.device.type == "cpu" else None
    return None if kernels is None else kernels.new_draw(p)


def draws_with_numba(device: torch.device) -> bool:
    """Whether numba draws there, for whoever wants to draw the same numbers again."""
    return device.type == "cpu" and loaded_kernels() is not None


class Dropped(torch.autograd.Function):
    """x * factors, as `dtype`."""

    @staticmethod
    def forward(ctx, x: Tensor, draw: "CompiledDraw", dtype: torch.dtype) -> Tensor:
        ctx.draw, ctx.dtype = draw, x.dtype
        return draw.times(x, dtype)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return Dropped.apply(grad_outputs[0], ctx.draw, ctx.dtype), None, None  # as often as it is asked for


class AddDropped(torch.autograd.Function):
    """x + y * factors, in one pass: x and y of one shape, x float32 or of y's type."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, draw: "CompiledDraw") -> Tensor:
        ctx.draw, ctx.dtype = draw, y.dtype
        return draw.added(x, y)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad_outputs[0], Dropped.apply(grad_outputs[0], ctx.draw, ctx.dtype), None


class ReluDropped(torch.autograd.Function):
    """relu(x) * factors, without keeping what was dropped: it is where the result is zero."""

    @staticmethod
    def forward(ctx, x: Tensor, draw: "CompiledDraw") -> Tensor:
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
