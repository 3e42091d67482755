"""Several processes, each with the whole model: DDP."""

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage], documented there
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.machine.world import World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.sharing.alone import Unshared

# The name of the argument from torch 2.13 on, and before. The buffers of all processes are equal by construction.
BUFFERS = "forward_sync_buffers"
if BUFFERS not in inspect.signature(DistributedDataParallel).parameters:
    BUFFERS = "broadcast_buffers"


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
        """Add up gradients over processes, where DDP takes their mean. At the last ones all processes meet."""
        if bucket.is_last():
            self.world.arrive()
        work = distributed.all_reduce(bucket.buffer(), async_op=True)
        assert work is not None, "this process is in the group"
        return work.get_future().then(lambda done: done.value()[0])

    def can_begin_again(self, last: bool) -> bool:
        return not last  # in the last pass the others wait for this process's gradients
