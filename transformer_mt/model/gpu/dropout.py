"""Dropout in a step that torch.compile makes for a GPU.

A kernel chooses what is kept, and the compiler puts the product with that into the pass that is there anyway, forward
and backward. `relu_dropout.py` and `post_norm.py` have kernels for all of their pass, which choose in it.
"""

from typing import Any

import torch
from torch import Tensor

STEPS = 2**16  # a probability is a multiple of 1 / STEPS
_BLOCK = 1024  # draws of a program


def draws_for(x: Tensor) -> bool:
    """Whether dropout of x is drawn by `kept`: uncompiled, torch has one kernel for all of it. What is compiled for a
    GPU has Triton.
    """
    return x.device.type == "cuda" and torch.compiler.is_compiling()


def _kernels() -> Any:
    """`dropout_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import dropout_kernels

    return dropout_kernels


def threshold_of(p: float) -> int:
    """How many of `STEPS` draws keep a number that dropout with p zeroes else."""
    return round((1 - p) * STEPS)


def drop(x: Tensor, p: float) -> Tensor:
    """`parts.dropout.dropout` where `draws_for` said yes."""
    threshold = threshold_of(p)
    return torch.where(kept(x, threshold), x * (STEPS / max(threshold, 1)), 0.0)


def new_seed(device: torch.device, threshold: int) -> Tensor:
    """(1,): of the draws of one kernel; 0 where all is kept."""
    drops = threshold < STEPS
    return torch.randint(2**62, (1,), device=device) if drops else torch.zeros(1, dtype=torch.int64, device=device)


@torch.library.custom_op("transformer_mt::kept", mutates_args=())
def kept(x: Tensor, threshold: int) -> Tensor:
    """For each element of x, whether it is kept: with a probability of threshold / STEPS."""
    number = -(-x.numel() // 8)
    decisions = torch.empty(number, dtype=torch.int64, device=x.device)
    seed = torch.randint(2**62, (1,), device=x.device)
    _kernels().keep[(-(-number // _BLOCK),)](decisions, seed, threshold, number, block=_BLOCK)
    return decisions.view(torch.bool)[: x.numel()].view(x.shape)


@kept.register_fake
def _(x: Tensor, threshold: int) -> Tensor:
    return torch.empty(x.shape, dtype=torch.bool, device=x.device)
