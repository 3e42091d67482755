"""The end of a post-norm sublayer on a GPU, norm(x + dropout(y)): an operation that torch.compile knows of."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_mt.model.gpu.dropout import STEPS, new_seed, num_programs, threshold_of, tile_of

_WIDEST = 4096  # numbers of a row, which a program holds


class Stream(NamedTuple):
    """What goes from one post-norm sublayer to the next: the same numbers for the sum, and for products."""

    full: Tensor  # (..., d_model), float32
    low: Tensor  # in 16 bits


def _kernels() -> Any:
    """`norm_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import norm_kernels

    return norm_kernels


def takes_norm(norm: nn.Module, low: torch.dtype) -> bool:
    """Whether `normed_sum` computes this norm, where products are of this type and Triton works."""
    if not isinstance(norm, nn.LayerNorm) or norm.bias is None or low.itemsize != 2:
        return False
    return norm.weight.dtype == torch.float32 and norm.normalized_shape[0] <= _WIDEST


def normed_sum(x: Tensor, y: Tensor, norm: nn.LayerNorm, p: float) -> Stream:
    """norm(x + dropout(y, p)) where `takes_norm` said yes; x (..., d_model) float32, y the same in 16 bits."""
    size, threshold = x.size(-1), threshold_of(p)
    out, low, *_ = add_and_norm(x.reshape(-1, size), y.reshape(-1, size), norm.weight, norm.bias, threshold, norm.eps)
    return Stream(out.view(x.shape), low.view(x.shape))


@torch.library.custom_op("transformer_mt::add_and_norm", mutates_args=())
def add_and_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, threshold: int, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x (num_rows, size) float32, y the same in 16 bits, of which a number is kept with a probability of threshold /
    STEPS -> the norm of the sum, in float32 and in the type of y; and for the backward pass the sum, mean and rate of
    each row, and the seed of dropout.
    """
    x, y = x.contiguous(), y.contiguous()
    out, sums, low = torch.empty_like(x), torch.empty_like(x), torch.empty_like(y)
    moments = x.new_empty(len(x), 2)
    seed = new_seed(x.device, threshold)
    sizes = tile_of(x.size(1))
    _kernels().norm_forward[(-(-len(x) // sizes["height"]),)](
        x, y, weight, bias, out, low, sums, moments, seed, threshold, STEPS / max(threshold, 1), eps, len(x),
        size=x.size(1), drops=threshold < STEPS, **sizes,
    )  # fmt: skip
    return out, low, sums, moments, seed


@add_and_norm.register_fake
def _(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, threshold: int, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    seed = x.new_empty(1, dtype=torch.int64)
    return x.new_empty(x.shape), y.new_empty(y.shape), x.new_empty(x.shape), x.new_empty(x.size(0), 2), seed


@torch.library.custom_op("transformer_mt::add_and_norm_backward", mutates_args=())
def add_and_norm_backward(
    grad: Tensor, low_grad: Tensor, sums: Tensor, moments: Tensor, weight: Tensor, seed: Tensor, threshold: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and y, and (2, size) those of weight and bias."""
    grad, low_grad = grad.contiguous(), low_grad.contiguous()
    x_grad, y_grad = torch.empty_like(grad), torch.empty_like(low_grad)
    programs, size = num_programs(grad.device), grad.size(1)
    totals = grad.new_empty(2, programs, size)
    _kernels().norm_backward[(programs,)](
        grad, low_grad, sums, moments, weight, x_grad, y_grad, totals[0], totals[1], seed, threshold,
        STEPS / max(threshold, 1), len(grad), size=size, drops=threshold < STEPS, **tile_of(size),
    )  # fmt: skip
    return x_grad, y_grad, totals.sum(dim=1)


@add_and_norm_backward.register_fake
def _(
    grad: Tensor, low_grad: Tensor, sums: Tensor, moments: Tensor, weight: Tensor, seed: Tensor, threshold: int
) -> tuple[Tensor, Tensor, Tensor]:
    return grad.new_empty(grad.shape), low_grad.new_empty(low_grad.shape), grad.new_empty(2, grad.size(1))


def _set_up(ctx, inputs: tuple, output: tuple) -> None:
    _, _, weight, _, ctx.threshold, _ = inputs
    ctx.save_for_backward(*output[2:], weight)
    ctx.mark_non_differentiable(*output[2:])


def _backward(ctx, grad: Tensor, low_grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    sums, moments, seed, weight = ctx.saved_tensors
    x_grad, y_grad, affine = add_and_norm_backward(grad, low_grad, sums, moments, weight, seed, ctx.threshold)
    return x_grad, y_grad, affine[0], affine[1], None, None


add_and_norm.register_autograd(_backward, setup_context=_set_up)
