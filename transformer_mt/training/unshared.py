"""A process that has the model to itself; what those of several have of their own is told against this."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from transformer_mt.data.batching import Batch
from transformer_mt.machine.world import World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import CrossEntropy, LossSums, batch_loss, cross_entropy_sums


class WithLoss(nn.Module):
    """A model whose forward pass ends in the loss, as one module: what wraps it sees the whole pass."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model
        self.cross_entropy: CrossEntropy = cross_entropy_sums

    def forward(self, batch: Batch, label_smoothing: float) -> LossSums:
        """The sums of `batch_loss` over a batch on the model's device."""
        src, tgt_in, tgt_out = batch.src, batch.tgt_in, batch.tgt_out
        return batch_loss(self.model, src, tgt_in, tgt_out, label_smoothing, batch.real, self.cross_entropy)


class Unshared:
    """One process with the model to itself."""

    weight = 1.0  # of a loss, where what torch makes of the gradients is not their sum

    def __init__(self, model: TranslationModel, world: World) -> None:
        self.model = model
        self.world = world
        self.module: nn.Module = WithLoss(model)

    def passing(self, last: bool) -> AbstractContextManager:
        """Around a forward and backward pass; `last`: the gradients are complete after it."""
        return nullcontext()

    def can_begin_again(self, last: bool) -> bool:
        """Whether a pass in which the memory ran out concerns this process alone."""
        return True

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a parameter, or of what belongs to one, of which this process may have a part. All must ask."""
        return tensor

    def part(self, tensor: Tensor, like: Tensor) -> Tensor:
        """This process's part, as large as its part of the parameter `like`, of what is the same in all."""
        return tensor

    def collected(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """All of each of these, in the first process at least. All must ask."""
        return tensors

    def handed_out(self, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """What the first process has, whole, one after the other in all of them. All must ask."""
        if self.world.size == 1:
            yield from tensors.items()
            return
        device = next(self.model.parameters()).device
        kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        for name, (shape, dtype) in self.world.first(lambda: kinds).items():
            mine = tensors[name].to(device) if self.world.is_first else torch.empty(shape, dtype=dtype, device=device)
            yield name, self.world.broadcast(mine)

    @contextmanager
    def whole_model(self) -> Iterator[TranslationModel]:
        """The model, to be looked at by each process for itself."""
        yield self.model
