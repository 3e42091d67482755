"""LayerDrop (Fan et al. 2020): in training each layer is skipped with some probability, and its input goes on as it is.

The draws come from the global generator of the CPU, which is seeded for each micro-batch; so nobody waits for a GPU.
"""

import torch
from torch import Tensor


def drawn(p: float) -> bool:
    """Whether a layer is skipped: True with probability p."""
    return bool(torch.rand(()) < p)


class Skipped(torch.autograd.Function):
    """x itself. The parameters of the layer get a gradient of 0, which is the gradient of a loss that they do not enter.

    Without it DDP would wait for their gradients, and Adam would leave its means of them as they are in one process,
    but not among several of which one computes the layer.
    """

    @staticmethod
    def forward(ctx, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        return grad_outputs[0], *map(torch.zeros_like, ctx.saved_tensors)
