"""Output projection and cross-entropy as one operation in training on a GPU.

The logits of some rows are made, turned into their gradient in place by one kernel, and multiplied into the gradients
of hidden states and weight. So logits are read and written once beside the products, and those of a large batch never
exist all at once.
"""

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.gpu.triton_works import triton_works

MOST_BYTES = 2**30  # of logits at a time: few products and bounded memory
# Widths are a multiple: fast products want rows of 16 bytes or a multiple, and Triton's fast loads 16 numbers.
ALIGNED = 16
_ROWS = 64  # chunks have a multiple of so many rows
# Numbers of a row that a program holds, at least and at most, and how many of them a warp has: the fastest on an H100.
_BLOCKS = 1024, 2048
_A_WARP = 512
_DTYPES = torch.bfloat16, torch.float32


def _kernels() -> Any:
    """`loss_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import loss_kernels

    return loss_kernels


def takes_output(output: nn.Module, device: torch.device, dtype: torch.dtype) -> TypeGuard[nn.Linear]:
    """Whether `OutputCrossEntropy` computes this projection and its loss there, with products of this type.

    Not in fp16, whose gradients need the scaler's factor before they are rounded, and not where hooks want the logits.
    """
    if not isinstance(output, nn.Linear) or output._forward_hooks or output._forward_pre_hooks:
        return False
    return dtype in _DTYPES and triton_works(device)


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

        Products are computed in `dtype`. Gradients of what needs them are made here, where the logits are, if
        `with_gradient`.
        """
        of_hidden, of_weight, of_bias = (with_gradient and needed for needed in ctx.needs_input_grad[:3])
        surplus = -len(weight) % ALIGNED
        narrow, narrow_weight = hidden.to(dtype), F.pad(weight.to(dtype), (0, 0, 0, surplus))
        narrow_bias = None if bias is None else F.pad(bias.to(dtype), (0, surplus))
        shares = None if prior is None else F.pad(prior.float(), (0, surplus))
        losses, nlls = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(2))
        hidden_grads, weight_grad, bias_grad = [], None, None
        height = chunk_height(len(hidden), len(narrow_weight), dtype)
        for start in range(0, len(hidden), height):
            rows = slice(start, start + height)
            logits = F.linear(narrow[rows], narrow_weight, narrow_bias)
            _to_gradient(
                logits, targets[rows], shares, losses[rows], nlls[rows], label_smoothing, len(weight), with_gradient
            )
            if of_hidden:
                hidden_grads.append(logits @ narrow_weight)
            if of_weight:
                weight_grad = _added(weight_grad, logits.t() @ narrow[rows], weight.dtype)
            if of_bias:
                bias_grad = _added(bias_grad, logits.sum(dim=0, dtype=torch.float32), torch.float32)
        ctx.save_for_backward(
            torch.cat(hidden_grads).to(hidden.dtype) if hidden_grads else None,
            None if weight_grad is None else weight_grad[: len(weight)],
            None if bias is None or bias_grad is None else bias_grad[: len(weight)].to(bias.dtype),
        )
        nll = nlls.sum()
        ctx.mark_non_differentiable(nll)
        return losses.sum(), nll

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of loss and nll, the second unused -> of hidden, weight and bias, in their shapes and types."""
        grads = (None if saved is None else saved * grad_outputs[0] for saved in ctx.saved_tensors)
        return *grads, None, None, None, None, None


def chunk_height(num_rows: int, width: int, dtype: torch.dtype) -> int:
    """Rows whose logits are made at a time: equal parts of some `MOST_BYTES` at most, of a multiple of `_ROWS`."""
    parts = max(1, -(-num_rows * width * dtype.itemsize // MOST_BYTES))
    height = -(-num_rows // parts)
    return max(_ROWS, height + -height % _ROWS)


def _to_gradient(
    logits: Tensor, targets: Tensor, shares: Tensor | None, losses: Tensor, nlls: Tensor, label_smoothing: float,
    num_classes: int, with_gradient: bool,
) -> None:  # fmt: skip
    """Call the kernel for some rows; shares (width,) is the prior with its zeros."""
    num_rows, width = logits.shape
    least, most = _BLOCKS
    block = min(max(least, 1 << (width - 1).bit_length()), most)
    _kernels().cross_entropy[(num_rows,)](
        logits, targets, logits if shares is None else shares, losses, nlls, label_smoothing, num_classes, width,
        block=block, whole=width <= block, has_prior=shares is not None, with_gradient=with_gradient,
        num_warps=min(16, max(4, block // _A_WARP)), num_stages=1,
    )  # fmt: skip


def _added(total: Tensor | None, more: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of what chunks bring, in this type."""
    return more.to(dtype) if total is None else total.add_(more)
