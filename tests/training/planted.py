"""Updates that are made to be not finite. Run by `torchrun` in tests: three updates ordered one after the other, of
which the second is not finite in the last process alone; what is left of the weights, into files.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from toy import toy_config

from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.machine.joining import joined_world
from transformer_mt.machine.world import World
from transformer_mt.model.loss import LossSums
from transformer_mt.training import updates
from transformer_mt.training.debugging.not_finite import NotFiniteError
from transformer_mt.training.micro_batch import dropout_seed
from transformer_mt.training.running_update import RunningUpdate

CPU = torch.device("cpu")
MICRO_BATCHES = [np.arange(8), np.arange(8, 16)]
STOPPED = "stopped at step 2: the loss is inf"
add_gradient = updates.add_gradient


def not_finite_at(step: int, what: str, seed: int) -> Callable[..., LossSums]:
    """`add_gradient`, but that in the first micro-batch of an update the loss is infinite, and its gradient is not; or
    the gradient, and its loss is not.
    """
    planted = dropout_seed(seed, step, 0), dropout_seed(seed, step, 1)

    def add(module: nn.Module, batch, batch_seed: int, *arguments) -> LossSums:
        sums = add_gradient(module, batch, batch_seed, *arguments)
        if batch_seed in planted:
            if what == "loss":
                return LossSums(sums.loss + torch.inf, sums.nll, sums.load_balancing)
            bias = next(parameter for name, parameter in module.named_parameters() if name.endswith("norm.bias"))
            assert bias.grad is not None
            bias.grad += torch.inf
        return sums

    return add


def main(corpus: Path, sharding: str, folder: Path, world: World) -> None:
    updates.RUNS_AHEAD = ("cpu",)
    config = toy_config(corpus, training={"sharding": sharding})
    data = prepare_data(config)
    torch.manual_seed(0)
    updater = updates.Updater(
        build_model(config, data.src_tokenizer, data.tgt_tokenizer), config.training, config.seed, "fp32", CPU, world
    )
    if world.rank == world.size - 1:
        updates.add_gradient = not_finite_at(2, "loss", config.seed)
    running: list[RunningUpdate] = [updater.update(data.train, MICRO_BATCHES, step, "") for step in (1, 2, 3)]
    running[0].result()
    try:
        running[1].result()
    except NotFiniteError as error:
        print(STOPPED if error.reason.startswith("The loss is inf at step 2 ") else error.reason)
    weights, moments = updater.tensors()
    if world.is_first or sharding == "none":  # then each has a copy of its own
        save_file({**weights, **moments}, folder / f"left_{world.rank}.safetensors")


if __name__ == "__main__":
    with joined_world(CPU, timeout_minutes=2) as world:
        main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), world)
