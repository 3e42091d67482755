"""Linear maps whose weights are read instead of calling them: several as one product, and one without its bias."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def stacked(linears: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the one product that computes the results of all of these side by side."""
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return torch.cat([linear.weight for linear in linears]), bias


def is_unwatched(module: nn.Module) -> bool:
    """Whether no hook looks on when it is called."""
    hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
    return not any(hooks)


def is_plain(module: nn.Module) -> bool:
    """Whether it is x W^T + b and nobody looks on, so that its weights may be read instead of calling it."""
    return type(module) is nn.Linear and is_unwatched(module)


def product(linear: nn.Linear, x: Tensor, biased: bool) -> Tensor:
    """linear(x), or without its bias, which then whoever takes the product adds; that takes `is_plain`."""
    return linear(x) if biased else F.linear(x, linear.weight)
