"""LayerDrop (Fan et al. 2020): in training each layer is skipped with some probability, and its input goes on as it is.

The draws come from the global generator of the CPU, which is seeded for each micro-batch; so nobody waits for a GPU.
"""

import torch
from torch import Tensor


def drawn(p: float) -> bool:
    """Whether a layer is skipped: True with probability p."""
    return bool(torch.rand(()) < p)


class Skipped(torch.autograd.Function):
    """x itself. What the layer would have used, its parameters and a memory, gets a gradient of 0, as it should where
    the loss does not depend on it.

    Without it DDP would wait for their gradients. And Adam would make no step on them where every micro-batch of an
    update skips the layer, but would among several processes, whose sum is 0.
    """

    @staticmethod
    def forward(ctx, x: Tensor, *unused: Tensor) -> Tensor:
        ctx.save_for_backward(*unused)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        return grad_outputs[0], *map(torch.zeros_like, ctx.saved_tensors)
