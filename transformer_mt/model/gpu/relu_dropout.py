"""Bias, relu and dropout of a feed-forward on a GPU: an operation that torch.compile knows of.

The backward pass needs nothing but the result: what was kept and positive is positive there.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.gpu.dropout import STEPS, new_seed, threshold_of
from transformer_mt.model.gpu.rows import STAGES, column_sums, num_programs, tile_of

_WIDTH = 512  # of a tile, whose rows need not be whole


def _kernels() -> Any:
    """`relu_dropout_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import relu_dropout_kernels

    return relu_dropout_kernels


def linear_relu_dropout(x: Tensor, linear: nn.Linear, p: float) -> Tensor:
    """dropout(relu(linear(x)), p) where `dropout.draws_for` said yes; x (..., in_features)."""
    product = F.linear(x, linear.weight)
    rows = product.reshape(-1, product.size(-1))
    return relu_dropped(rows, linear.bias, threshold_of(p)).view(product.shape)


@torch.library.custom_op("transformer_mt::relu_dropped", mutates_args=())
def relu_dropped(x: Tensor, bias: Tensor | None, threshold: int) -> Tensor:
    """dropout(relu(x + bias)), x (num_rows, size), bias (size,); a number is kept with a probability of threshold /
    STEPS.
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    sizes = tile_of(x.size(1), _WIDTH)
    grid = -(-len(x) // sizes["height"]), -(-x.size(1) // sizes["width"])
    _kernels().relu_forward[grid](
        x, x if bias is None else bias, out, new_seed(x.device, threshold), threshold, STEPS / max(threshold, 1),
        len(x), size=x.size(1), drops=threshold < STEPS, has_bias=bias is not None, **sizes,
    )  # fmt: skip
    return out


@relu_dropped.register_fake
def _(x: Tensor, bias: Tensor | None, threshold: int) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("transformer_mt::relu_dropped_backward", mutates_args=())
def relu_dropped_backward(grad: Tensor, out: Tensor, threshold: int, has_bias: bool) -> tuple[Tensor, Tensor]:
    """The gradients of x and, in float32, of the bias, which is empty where there is none."""
    grad = grad.contiguous()
    x_grad = torch.empty_like(grad)
    size, sizes = grad.size(1), tile_of(grad.size(1), _WIDTH)
    blocks = -(-size // sizes["width"])
    programs = -(-2 * num_programs(grad.device) // blocks)
    sums = torch.empty(programs if has_bias else 0, size, dtype=torch.float32, device=grad.device)
    _kernels().relu_backward[programs, blocks](
        grad, out, x_grad, sums, STEPS / max(threshold, 1), len(grad), size=size, has_bias=has_bias, **sizes,
        stages=STAGES,
    )  # fmt: skip
    return x_grad, column_sums(sums)


@relu_dropped_backward.register_fake
def _(grad: Tensor, out: Tensor, threshold: int, has_bias: bool) -> tuple[Tensor, Tensor]:
    return grad.new_empty(grad.shape), grad.new_empty(grad.size(1), dtype=torch.float32)


def _set_up(ctx, inputs: tuple, output: Tensor) -> None:
    _, bias, ctx.threshold = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(output)


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    (out,) = ctx.saved_tensors
    x_grad, bias_grad = relu_dropped_backward(grad, out, ctx.threshold, ctx.bias_dtype is not None)
    return x_grad, None if ctx.bias_dtype is None else bias_grad.to(ctx.bias_dtype), None


relu_dropped.register_autograd(_backward, setup_context=_set_up)
