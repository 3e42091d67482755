"""Run by `torchrun` in tests: the second process is alive, and never comes to where the first one waits."""

import time

import torch

from transformer_mt.machine.processes import joined_world

if __name__ == "__main__":
    with joined_world(torch.device("cpu"), timeout_minutes=0.1) as world:
        world.sum([1.0])
        if world.rank == 1:
            time.sleep(100)
        world.sum([2.0])
