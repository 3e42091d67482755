"""Output projection and cross-entropy as one operation in training on a GPU.

The logits of some rows are made, turned into their gradient in place by one kernel, and multiplied into the gradients
of hidden states and weight. So logits are read and written once beside the products, and those of a large batch never
exist all at once.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.gpu.triton_works import triton_works

MOST_BYTES = 2**30  # of logits at a time: higher products are no faster
ALIGNED = 8  # fast products want rows of 16 bytes or a multiple; that is eight numbers of 16 bits
_ROWS = 64  # a chunk has a multiple of so many
_BLOCK = 4096  # numbers of a row that a program holds


def _kernels() -> Any:
    """`loss_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import loss_kernels

    return loss_kernels


def takes_output(output: nn.Module, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `OutputCrossEntropy` computes this projection and its loss, with products of this type. fp16 needs the
    scaler's factor before gradients are rounded, and hooks must be shown the logits.
    """
    if type(output) is not nn.Linear or output._forward_hooks or output._forward_pre_hooks:
        return False
    return dtype != torch.float16 and triton_works(device)


class OutputCrossEntropy(torch.autograd.Function):
    """`cross_entropy_sums(F.linear(hidden, weight, bias), targets, label_smoothing)`, gradients included."""

    @staticmethod
    def forward(
        ctx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
        with_gradient: bool,
        prior: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """hidden (num_tokens, d_model), weight (vocab_size, d_model), bias (vocab_size,), targets (num_tokens,), prior
        (vocab_size,) -> loss and nll, sums over the tokens, in float32.

        Products are computed in `dtype`. Gradients are made here, where the logits are, if `with_gradient`.
        """
        surplus = -len(weight) % ALIGNED if dtype.itemsize == 2 else 0
        rows_of, narrow_weight = hidden.to(dtype), F.pad(weight.to(dtype), (0, 0, 0, surplus))
        narrow_bias = None if bias is None else F.pad(bias.to(dtype), (0, surplus))
        losses, nlls = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(2))
        hidden_grad = torch.empty_like(hidden) if with_gradient else None
        weight_grad = bias_grad = None
        height = chunk_height(len(hidden), len(narrow_weight), dtype)
        for start in range(0, len(hidden), height):
            rows = slice(start, start + height)
            logits = F.linear(rows_of[rows], narrow_weight, narrow_bias)
            _kernels().cross_entropy[(len(logits),)](
                logits, targets[rows], targets if prior is None else prior, losses[rows], nlls[rows], label_smoothing,
                len(weight), len(narrow_weight), block=_BLOCK, has_prior=prior is not None, with_gradient=with_gradient,
                num_warps=8,
            )  # fmt: skip
            if hidden_grad is None:
                continue
            hidden_grad[rows] = logits @ narrow_weight
            of_weight = logits.t() @ rows_of[rows]
            weight_grad = of_weight.to(weight.dtype) if weight_grad is None else weight_grad.add_(of_weight)
            if bias is not None:
                of_bias = logits.sum(dim=0, dtype=torch.float32)
                bias_grad = of_bias if bias_grad is None else bias_grad.add_(of_bias)
        if weight_grad is not None:
            weight_grad = weight_grad[: len(weight)]
            bias_grad = None if bias_grad is None or bias is None else bias_grad[: len(bias)].to(bias.dtype)
            ctx.save_for_backward(hidden_grad, weight_grad, bias_grad)
        nll = nlls.sum()
        ctx.mark_non_differentiable(nll)
        return losses.sum(), nll

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of loss and nll, the second unused -> of hidden, weight and bias, in their shapes and types."""
        grads = (None if saved is None else saved * grad_outputs[0] for saved in ctx.saved_tensors)
        return *grads, None, None, None, None, None


def chunk_height(num_rows: int, width: int, dtype: torch.dtype) -> int:
    """Rows whose logits are made at a time: equal parts of at most `MOST_BYTES`, of a multiple of `_ROWS`."""
    parts = -(-num_rows * width * dtype.itemsize // MOST_BYTES)
    height = -(-num_rows // max(parts, 1))
    return max(height + -height % _ROWS, _ROWS)
