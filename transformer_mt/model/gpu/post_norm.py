"""The end of a post-norm sublayer on a GPU, norm(x + dropout(y)): an operation that torch.compile knows of."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_mt.model.gpu.dropout import STEPS, new_seed, threshold_of
from transformer_mt.model.gpu.rows import STAGES, column_sums, num_programs, tile_of

_WIDEST = 4096  # numbers of a row, which a program holds


class _Past(torch.autograd.Function):
    """A `Stream.past` from nothing: the gradient that comes through it is the tensor's."""

    @staticmethod
    def forward(ctx, low: Tensor) -> Tensor:
        return torch.empty_like(low)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> Tensor:
        return grad_outputs[0]


class Stream(NamedTuple):
    """What goes from one post-norm sublayer to the next: its products would round it to 16 bits anyway, and so its sum
    takes it rounded. Half as many bytes are moved, and gradients are hardly farther from the true ones.

    `past` leads past the next sublayer, to its end. Nobody reads what is in it, and only the gradient that comes back
    through it counts: so this end's kernel adds it to that of the sublayer, and no pass of its own has to.
    """

    low: Tensor  # (..., d_model), in 16 bits
    past: Tensor  # the same shape and type

    @classmethod
    def begun(cls, low: Tensor) -> "Stream":
        """The first sublayer's. Its `past` is no view of `low`: torch.compile would make graphs of its own for it."""
        return cls(low, _Past.apply(low))


def _kernels() -> Any:
    """`norm_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import norm_kernels

    return norm_kernels


def takes_norm(norm: nn.Module, low: torch.dtype) -> bool:
    """Whether `normed_sum` computes this norm, where products are of this type and Triton works."""
    return low.itemsize == 2 and is_usual(norm)


def is_usual(norm: nn.Module) -> bool:
    """Whether the kernels know this norm."""
    if not isinstance(norm, nn.LayerNorm) or norm.bias is None:
        return False
    return norm.weight.dtype == torch.float32 and norm.normalized_shape[0] <= _WIDEST


def normed_sum_of(x: Tensor, y: Tensor, norm: nn.LayerNorm) -> Tensor:
    """norm(x + y) out of training, where `is_usual` said yes and Triton works: x and y (..., d_model), each of its own
    type -> the same shape, of the type of y.
    """
    x, y = x.contiguous(), y.contiguous()
    size = y.size(-1)
    num_rows, sizes = y.numel() // size, tile_of(size)
    out, moments = torch.empty_like(y), norm.weight.new_empty(num_rows, 2)
    with torch.cuda.device_of(y):  # Triton goes by the thread's device
        _kernels().norm_forward[(-(-num_rows // sizes["height"]),)](
            x, y, norm.bias, norm.weight, norm.bias, out, moments, moments, STEPS, 1.0, norm.eps, num_rows, size=size,
            drops=False, has_bias=False, **sizes,
        )  # fmt: skip
    return out


def normed_sum(x: Stream, y: Tensor, y_bias: Tensor | None, norm: nn.LayerNorm, p: float) -> Stream:
    """norm(x + dropout(y + y_bias, p)) where `takes_norm` said yes; x and y (..., d_model) in the same 16 bits."""
    shape, size = y.shape, y.size(-1)
    rows = (tensor.reshape(-1, size) for tensor in (x.low.detach(), x.past, y))
    out, past, *_ = add_and_norm(*rows, y_bias, norm.weight, norm.bias, threshold_of(p), norm.eps)
    return Stream(out.view(shape), past.view(shape))


@torch.library.custom_op("transformer_mt::add_and_norm", mutates_args=())
def add_and_norm(
    x: Tensor, past: Tensor, y: Tensor, y_bias: Tensor | None, weight: Tensor, bias: Tensor, threshold: int, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x and y (num_rows, size) in 16 bits, y_bias (size,), and a number of y is kept with a probability of threshold /
    STEPS -> the norm of the sum, in 16 bits, and what `Stream.past` says; and for the backward pass mean and rate of
    each row, and the seed of dropout. The gradient of x is that of `past`, whose numbers are not read.
    """
    x, y = x.contiguous(), y.contiguous()
    out, moments = torch.empty_like(x), weight.new_empty(len(x), 2)
    seed = new_seed(x.device, threshold)
    sizes = tile_of(x.size(1))
    _kernels().norm_forward[(-(-len(x) // sizes["height"]),)](
        x, y, bias if y_bias is None else y_bias, weight, bias, out, moments, seed, threshold,
        STEPS / max(threshold, 1), eps, len(x), size=x.size(1), drops=threshold < STEPS, has_bias=y_bias is not None,
        **sizes,
    )  # fmt: skip
    return out, torch.empty_like(x), moments, seed


@add_and_norm.register_fake
def _(
    x: Tensor, past: Tensor, y: Tensor, y_bias: Tensor | None, weight: Tensor, bias: Tensor, threshold: int, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    moments, seed = weight.new_empty(x.size(0), 2), x.new_empty(1, dtype=torch.int64)
    return x.new_empty(x.shape), x.new_empty(x.shape), moments, seed


@torch.library.custom_op("transformer_mt::add_and_norm_backward", mutates_args=())
def add_and_norm_backward(
    grad: Tensor, past_grad: Tensor | None, x: Tensor, y: Tensor, y_bias: Tensor | None, moments: Tensor,
    weight: Tensor, seed: Tensor, threshold: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of x and y, and (3, size) in float32 those of weight, bias and y_bias."""
    grad, x, y = grad.contiguous(), x.contiguous(), y.contiguous()
    past_grad = None if past_grad is None else past_grad.contiguous()
    x_grad, y_grad = torch.empty_like(x), torch.empty_like(y)
    programs, size = num_programs(grad.device), grad.size(1)
    sums = weight.new_empty(programs, 3 * size)
    _kernels().norm_backward[(programs,)](
        grad, grad if past_grad is None else past_grad, x, y, weight if y_bias is None else y_bias, moments, weight,
        x_grad, y_grad, sums, seed, threshold, STEPS / max(threshold, 1), len(grad), size=size,
        drops=threshold < STEPS, has_bias=y_bias is not None, has_past=past_grad is not None, **tile_of(size),
        stages=STAGES,
    )  # fmt: skip
    return x_grad, y_grad, column_sums(sums).view(3, size)


@add_and_norm_backward.register_fake
def _(
    grad: Tensor, past_grad: Tensor | None, x: Tensor, y: Tensor, y_bias: Tensor | None, moments: Tensor,
    weight: Tensor, seed: Tensor, threshold: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape), y.new_empty(y.shape), weight.new_empty(3, grad.size(1))


def _set_up(ctx, inputs: tuple, output: tuple) -> None:
    x, _, y, y_bias, weight, _, ctx.threshold, _ = inputs
    ctx.save_for_backward(x, y, *output[2:], weight, y_bias)
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad: Tensor | None, past_grad: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, y, moments, seed, weight, y_bias = ctx.saved_tensors
    if grad is None:
        assert past_grad is not None
        grad, past_grad = past_grad, None
    x_grad, y_grad, sums = add_and_norm_backward(grad, past_grad, x, y, y_bias, moments, weight, seed, ctx.threshold)
    return None, x_grad, y_grad, None if y_bias is None else sums[2].to(y_bias.dtype), sums[0], sums[1], None, None


add_and_norm.register_autograd(_backward, setup_context=_set_up)
