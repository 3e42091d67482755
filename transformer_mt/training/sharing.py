"""How the processes of a training share the model: each has all of it (DDP), or each a part (FSDP2).

Each process computes its own micro-batches; in the backward pass of the last of them the gradients are added up. What
is done there is torch's.
"""

import copy
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage], documented there
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.data.batching import Batch
from transformer_mt.machine.processes import World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums, batch_loss
from transformer_mt.model.stack import Stack

# What the argument is called, from torch 2.13 on and before. Buffers are the same in all, by construction.
BUFFERS = "forward_sync_buffers"
if BUFFERS not in inspect.signature(DistributedDataParallel).parameters:
    BUFFERS = "broadcast_buffers"


class WithLoss(nn.Module):
    """A model whose forward pass ends in the loss, as one module: what wraps it sees the whole pass."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, label_smoothing: float) -> LossSums:
        """The sums of `batch_loss` over a batch on the model's device."""
        return batch_loss(self.model, batch.src, batch.tgt_in, batch.tgt_out, label_smoothing)


class Unshared:
    """One process with the model to itself."""

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


class Replicated(Unshared):
    """Each process has the whole model and the whole gradient."""

    def __init__(self, model: TranslationModel, world: World) -> None:
        super().__init__(model, world)
        device = next(model.parameters()).device
        settings: dict[str, Any] = {"device_ids": [device] if device.type == "cuda" else None, BUFFERS: False}
        self.module = self.replicas = DistributedDataParallel(self.module, gradient_as_bucket_view=True, **settings)
        self.replicas.register_comm_hook(None, self._add_up)

    def passing(self, last: bool) -> AbstractContextManager:
        return nullcontext() if last else self.replicas.no_sync()

    def _add_up(self, _: None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """What DDP does with gradients by itself; with the last of them this process comes to where all meet."""
        if bucket.is_last():
            self.world.arrive()
        return allreduce_hook(distributed.group.WORLD, bucket)  # pyright: ignore[reportArgumentType], it is one

    def can_begin_again(self, last: bool) -> bool:
        return not last  # in the last pass the others wait for this process's gradients


class Sharded(Unshared):
    """Each process has a part of every parameter, gradient and moment; a layer is put together when it is its turn."""

    def __init__(self, model: TranslationModel, world: World) -> None:
        super().__init__(model, world)
        # Copies share their parameters' places, so that what is tied stays tied; meta tensors take no memory.
        places = {id(p): nn.Parameter(torch.empty_like(p, device="meta")) for p in model.parameters()}
        self.outline = copy.deepcopy(model, dict(places))
        mesh = init_device_mesh(next(model.parameters()).device.type, (world.size,))
        for stack in [module for module in model.modules() if isinstance(module, Stack)]:
            for layer in stack.layers:
                fully_shard(layer, mesh=mesh)
        fully_shard(self.module, mesh=mesh)

    def passing(self, last: bool) -> AbstractContextManager:
        self.world.arrive()
        return nullcontext()

    def can_begin_again(self, last: bool) -> bool:
        return False  # every pass of every process goes through all of them

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, tensor: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor) or tensor.dim() == 0:  # Adam's count of steps is nobody's part
            return tensor
        return distribute_tensor(tensor, like.device_mesh, like.placements)

    def collected(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():
            whole = self.whole(tensor)
            if self.world.is_first:
                found[name] = whole.cpu()  # where there is room for all of them
        return found

    @contextmanager
    def whole_model(self) -> Iterator[TranslationModel]:
        """A copy of the model with all of its weights, for as long as the context lasts; without the moments and
        gradients, a quarter of what a process would need to train it alone.
        """
        weights = dict(self.model.named_parameters())
        places = {
            id(place): nn.Parameter(self.whole(weights[name].detach()))
            for name, place in self.outline.named_parameters()
        }
        yield copy.deepcopy(self.outline, dict(places)).train(self.model.training)


SHARINGS = {"none": Replicated, "full": Sharded}


def share_model(model: TranslationModel, sharding: str, world: World) -> Unshared:
    """The first process's weights, in all of them, in the way that `training.sharding` names."""
    if world.size == 1:
        return Unshared(model, world)
    for parameter in model.parameters():
        world.broadcast(parameter.detach())
    return SHARINGS[sharding](model, world)
