"""A process that has the model to itself. `ddp.py` and `fsdp.py` override what is different among several."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.data.batches.batching import Batch
from transformer_mt.machine.world import World
from transformer_mt.model.consistency import consistent_batch_loss
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import CrossEntropy, LossSums, batch_loss, cross_entropy_sums


class WithLoss(nn.Module):
    """A model with its loss as one module, so that a module of torch that wraps it sees the whole forward pass."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model
        self.cross_entropy: CrossEntropy = cross_entropy_sums
        self.prior: Tensor | None = None  # of smoothed targets; None: uniform

    def forward(self, batch: Batch, label_smoothing: float, consistency: ConsistencyConfig | None = None) -> LossSums:
        """The sums of `batch_loss` over a batch on the model's device, or of `consistent_batch_loss`."""
        model, src, tgt_in, tgt_out = self.model, batch.src, batch.tgt_in, batch.tgt_out
        if consistency is not None:
            return consistent_batch_loss(
                model, src, tgt_in, tgt_out, label_smoothing, consistency, batch.real, self.prior, batch.src_real
            )
        return batch_loss(
            model, src, tgt_in, tgt_out, label_smoothing, batch.real, self.cross_entropy, self.prior, batch.src_real
        )


class Unshared:
    """One process with the model to itself."""

    whole_optimizer = True  # whether this process holds all of the optimizer's moments
    weight = 1.0  # a factor of the loss: `Sharded` makes a sum of the mean that torch takes

    def __init__(self, model: TranslationModel, world: World) -> None:
        self.model = model
        self.world = world
        self.module: nn.Module = WithLoss(model)

    def passing(self, last: bool) -> AbstractContextManager:
        """A context for a forward and backward pass. `last`: the gradients are complete after this pass."""
        return nullcontext()

    def can_begin_again(self, last: bool) -> bool:
        """Whether this process may repeat a pass in which its memory ran out, because no other process waits in it."""
        return True

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradients down to this norm, and return the norm that they had. All processes must call this."""
        return nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)

    def whole(self, tensor: Tensor) -> Tensor:
        """The whole of a tensor of which this process may have a part. All processes must call this."""
        return tensor

    def local(self, tensor: Tensor) -> Tensor:
        """This process's part of a tensor of which each process may have one; it shares its memory."""
        return tensor

    def part(self, tensor: Tensor, like: Tensor) -> Tensor:
        """This process's part of a tensor that all processes have, cut as the parameter `like` is."""
        return tensor

    def collected(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors as wholes, in the first process at least. All processes must call this."""
        return tensors

    def handed_out(self, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The whole tensors of the first process, one after the other, in every process. All must call this."""
        if self.world.size == 1:
            yield from tensors.items()
            return
        device = next(self.model.parameters()).device
        kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        for name, (shape, dtype) in self.world.first(lambda: kinds).items():
            mine = tensors[name].to(device) if self.world.is_first else torch.empty(shape, dtype=dtype, device=device)
            yield name, self.world.broadcast(mine)

    @contextmanager
    def whole_model(self, weights: dict[str, Tensor] | None = None) -> Iterator[TranslationModel]:
        """The whole model in each process, to be looked at and not changed. With `weights`, which are whole or this
        process's parts, a model that has these and shares their memory.
        """
        if weights is None:
            yield self.model
            return
        # Tied weights stay tied in the copy, because both names map to one place.
        places = {id(p): nn.Parameter(weights[name], False) for name, p in self.model.named_parameters()}
        yield copy.deepcopy(self.model, dict(places)).train(self.model.training)
