"""An exponential moving average of the weights over the updates (Polyak and Juditsky 1992).

    average(step) = d average(step - 1) + (1 - d) weights(step),   d = min(decay, (1 + step) / (10 + step))

The average begins at the weights before the first update, which are random and must not stay in it. Under a constant
decay of 0.999 they would have a share of a third after 1,000 updates. With the decay that grows, their share is the
product of all d so far, which falls like 1 / step^9: below a millionth from update 20 on. Until d reaches `decay`, the
average reaches back over a ninth of the training so far. TensorFlow's `ExponentialMovingAverage` warms up alike.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from transformer_mt.storage.weights import unique_weights


def decay_at(decay: float, step: int) -> float:
    """The share of the average so far in the average after update `step`, counted from 1."""
    return min(decay, (1 + step) / (10 + step))


class MovingAverage:
    """The average of a model's weights, in float32 where the weights are. Of a sharded model it is sharded too.

    `weights` has the names of `unique_weights`. The model's own weights are never touched. `local` gives this process's
    part of a tensor.
    """

    def __init__(self, model: nn.Module, decay: float, local: Callable[[Tensor], Tensor]) -> None:
        self.decay = decay
        self._local = local
        self._trained = dict(model.named_parameters())
        self.weights = {name: weight.clone() for name, weight in unique_weights(model).items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Count the weights after update `step` in. Nothing waits for the device."""
        averages = [self._local(weight) for weight in self.weights.values()]
        trained = [self._local(self._trained[name].detach()) for name in self.weights]
        average = get_ema_multi_avg_fn(decay_at(self.decay, step))  # with a decay of 0 it gives the weights exactly
        average(averages, trained, step)
