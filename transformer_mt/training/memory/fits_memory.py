"""The refusal of a model that the machine's memory would not hold, before any of it is made."""

import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import gibibytes, memory_of_machine
from transformer_mt.machine.world import World
from transformer_mt.model.model_size import model_size

_BYTES = 4  # a number takes: weights and tables are float32 in every precision
_OF_A_WEIGHT = 4  # numbers a weight takes in training: itself, its gradient, Adam's two means; one more for ema_decay


def refuse_what_never_fits(
    config: RunConfig, src_vocab_size: int, tgt_vocab_size: int, device: torch.device, world: World
) -> None:
    """Raise UserError where the model alone takes more than all of the machine's memory. Linux promises memory that it
    does not have, and would end the process without a word.

    On a GPU, and where the model is sharded over processes, the machine's memory has to hold the weights alone, once.
    """
    there = memory_of_machine()
    if there is None:
        return
    parameters, tables = model_size(config.model, src_vocab_size, tgt_vocab_size)
    is_trained_here = device.type == "cpu" and (config.training.sharding == "none" or world.size == 1)
    is_trained_here = is_trained_here and not config.training.freeze  # what is frozen takes less, so nothing is refused
    of_a_weight = _OF_A_WEIGHT + (config.training.ema_decay is not None)
    needed = _BYTES * ((of_a_weight if is_trained_here else 1) * parameters + tables)
    if needed <= there:
        return
    of_tables = f" and {tables:,} numbers in its tables of positions" if tables > parameters else ""
    taken = "Training it takes" if is_trained_here else "They take"
    error = UserError(
        f"This model has {parameters:,} parameters{of_tables}. {taken} {gibibytes(needed)} at least, and this machine "
        f"has {gibibytes(there)}. Lower model.d_model, model.d_ff, the numbers of layers, model.max_len or "
        "tokenizer.vocab_size."
    )
    raise world.told_by_one(error)
