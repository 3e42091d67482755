"""`tmt` with a memory that, in process 1, has no room for more sentences at once than the environment says."""

import os

import torch
from torch import nn

from transformer_mt.cli.main import main
from transformer_mt.model.unpadded import Tokens, Unpadded
from transformer_mt.training import run


class SmallMemory(run.Updater):
    """Runs out in the middle of the backward pass, from the second update on."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # pyright: ignore[reportArgumentType]
        self.limit_of_sentences = int(os.environ["SENTENCES"])
        self.model.get_submodule("encoder").register_forward_hook(self.hook)

    def hook(self, module: nn.Module, inputs: tuple[Tokens, ...], memory: torch.Tensor) -> None:
        src = inputs[0]
        num_sentences = len(src.lengths) if isinstance(src, Unpadded) else len(src.ids)
        small = self.world.rank == 1 and bool(self.optimizer.state) and num_sentences > self.limit_of_sentences
        if small and memory.requires_grad:
            memory.register_hook(self.run_out)

    def run_out(self, gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


if __name__ == "__main__":
    run.Updater = SmallMemory
    main()
