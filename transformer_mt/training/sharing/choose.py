"""The choice how a process holds the model: alone, by DDP or by FSDP.

Each process computes its own micro-batches. In the backward pass of the last one torch adds the gradients of all
processes up: see `ddp.py` and `fsdp.py`.
"""

from transformer_mt.machine.world import World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.sharing.alone import Unshared


def share_model(model: TranslationModel, sharding: str, world: World) -> Unshared:
    """Give all processes the weights of the first, and share the model as `training.sharding` says."""
    if world.size == 1:
        return Unshared(model, world)
    for parameter in model.parameters():
        world.broadcast(parameter.detach())
    # Imported here because torch may have been built without the modules that these import.
    if sharding == "full":
        from transformer_mt.training.sharing.fsdp import Sharded

        return Sharded(model, world)
    from transformer_mt.training.sharing.ddp import Replicated

    return Replicated(model, world)
