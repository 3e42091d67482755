"""How a process, alone or one of several, holds the model that is trained.

Each process computes its own micro-batches; in the backward pass of the last of them the gradients are added up. What
is done there is torch's: see `replicated.py` (DDP) and `sharded.py` (FSDP2).
"""

from transformer_mt.machine.world import World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.unshared import Unshared


def share_model(model: TranslationModel, sharding: str, world: World) -> Unshared:
    """The first process's weights, in all of them, in the way that `training.sharding` names."""
    if world.size == 1:
        return Unshared(model, world)
    for parameter in model.parameters():
        world.broadcast(parameter.detach())
    # Only here: torch may be built without what these need.
    if sharding == "full":
        from transformer_mt.training.sharded import Sharded

        return Sharded(model, world)
    from transformer_mt.training.replicated import Replicated

    return Replicated(model, world)
