"""Several processes, each with a part of the model: FSDP2."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from transformer_mt.errors import UserError
from transformer_mt.machine.world import World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.stack import Stack
from transformer_mt.training.sharing.alone import Unshared


def _mean_of_ones(world: World, device: torch.device) -> float:
    """What the processes get where FSDP2 asks for a mean. On CPUs torch 2.7 returns the sum. Raises UserError on CPUs
    with torch 2.6, whose FSDP2 does not work there.
    """
    if device.type == "cpu" and not hasattr(torch.cpu.Stream, "record_event"):
        raise UserError(
            "training.sharding is full, which torch 2.6 does not do on CPUs. Use training.sharding none, or install a "
            "newer torch."
        )
    mean, ones = torch.empty(1, device=device), torch.ones(world.size, device=device)
    world.arrive()
    dist.reduce_scatter_tensor(mean, ones, dist.ReduceOp.AVG)
    return mean.item()


class Sharded(Unshared):
    """Each process has a part of every parameter, gradient and moment. A layer is put together while it computes.

    Neither `full_tensor` nor torch's `clip_grad_norm_` is used, which run the functional collectives. Both threads of a
    gloo group write the name of what they have done into one string, without a lock (torch 2.13). Names of more than 15
    letters, such as ALLGATHER_COALESCED, lie on the heap, where two threads can free one.
    """

    whole_optimizer = False

    def __init__(self, model: TranslationModel, world: World) -> None:
        super().__init__(model, world)
        device = next(model.parameters()).device
        self.weight = world.size / _mean_of_ones(world, device)  # FSDP2 takes the mean over processes
        # Tied weights stay tied in a copy, because both names map to one placeholder. Meta tensors take no memory.
        places = {id(p): nn.Parameter(torch.empty_like(p, device="meta")) for p in model.parameters()}
        self.outline = copy.deepcopy(model, dict(places))
        mesh = init_device_mesh(device.type, (world.size,))
        for stack in [module for module in model.modules() if isinstance(module, Stack)]:
            for layer in stack.layers:
                fully_shard(layer, mesh=mesh)
        fully_shard(self.module, mesh=mesh)

    def passing(self, last: bool) -> AbstractContextManager:
        self.world.arrive()
        return nullcontext()

    def can_begin_again(self, last: bool) -> bool:
        return False  # in every pass each process needs the parts of all others

    def clip(self, max_norm: float) -> Tensor:
        grads = [self.local(p.grad) for p in self.model.parameters() if p.grad is not None]
        square = nn.utils.get_total_norm(grads).square()
        self.world.arrive()
        dist.all_reduce(square)
        norm = square.sqrt()
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as in `clip_grad_norm_`
        for grad in grads:
            grad.mul_(factor)
        return norm

    def whole(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        self.world.arrive()
        part = tensor.to_local()
        rows = -(-len(tensor) // self.world.size)  # cut as by `torch.chunk`: the last processes have fewer, or none
        padded = part.new_zeros(rows, *part.shape[1:])
        padded[: len(part)] = part
        found = part.new_empty(self.world.size * rows, *part.shape[1:])
        dist.all_gather(list(found.chunk(self.world.size)), padded)
        return found[: len(tensor)]

    def local(self, tensor: Tensor) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def part(self, tensor: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor) or tensor.dim() == 0:  # Adam's count of steps is not cut into parts
            return tensor
        self.world.arrive()
        return distribute_tensor(tensor, like.device_mesh, like.placements)

    def collected(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():
            whole = self.whole(tensor)
            if self.world.is_first:
                found[name] = whole.cpu()  # where all tensors together have room
        return found

    @contextmanager
    def whole_model(self, weights: dict[str, Tensor] | None = None) -> Iterator[TranslationModel]:
        """A copy of the model with all of its weights, as long as the context lasts. It has neither moments nor
        gradients, so it takes a quarter of the memory that a training in one process takes.
        """
        weights = dict(self.model.named_parameters()) if weights is None else weights
        places = {
            id(place): nn.Parameter(self.whole(weights[name].detach()), weights[name].requires_grad)
            for name, place in self.outline.named_parameters()
        }
        yield copy.deepcopy(self.outline, dict(places)).train(self.model.training)
