"""An update that begins again in smaller parts where the memory runs out."""

from collections.abc import Callable

import torch

from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import free_cached_memory, is_out_of_memory
from transformer_mt.training.memory.memory_parts import MemoryLimit, Part
from transformer_mt.training.sharing.alone import Unshared


class NoRoomError(Exception):
    """The memory ran out, and other processes wait, so the update cannot begin again. The limit is noted already."""


class SmallerParts:
    """Finds by trying how large a part of a micro-batch may be, and keeps the size in `limit`.

    `sharing` says which micro-batches this process computes, and whether it may begin again alone.
    """

    def __init__(
        self, limit: MemoryLimit, sharing: Unshared, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        self.limit = limit
        self.sharing = sharing
        self.optimizer = optimizer
        self.device = device
        self.release: Callable[[], bool] = lambda: False  # gives up memory that is held for speed alone, if any is

    def own_parts(self, split: TrainingSplit, micro_batches: list[Rows]) -> list[Part]:
        """This process's micro-batches, in parts that fit. Every process gets equally many: parts that count nothing
        fill up the shorter lists.
        """
        rank, size = self.sharing.world.rank, self.sharing.world.size
        wholes = [Part(index, rows) for index, rows in enumerate(micro_batches)]
        shares = [
            [part for whole in wholes[other::size] for part in self.limit.pieces(split, whole)] for other in range(size)
        ]
        missing = max(map(len, shares)) - len(shares[rank])
        return shares[rank] + missing * [Part(0, micro_batches[0][:1], number=0)]

    def fits(
        self, split: TrainingSplit, part: Part, last: bool, work: Callable[..., object], *arguments: object
    ) -> bool:
        """Do the work on a part. Where the memory has no room for it, drop the gradients and return False. Its size is
        noted, unless memory was held that it can have the next time.

        Raises UserError where the part is one pair, and NoRoomError where other processes wait for it.
        """
        try:
            work(*arguments)
            return True
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Not within `except`: the error holds the frames, and those hold activations.
        self.optimizer.zero_grad(set_to_none=True)
        released = self.release()
        free_cached_memory(self.device)
        if released and self.sharing.can_begin_again(last):
            return False  # and the same part may fit next time
        if len(part.rows) == 1:
            row = part.rows[0]
            raise UserError(
                f"The memory of {self.device} has no room for one pair beside the model ("
                f"{split.where(int(row))}: {split.src_lengths[row]:,} source and "
                f"{split.tgt_lengths[row]:,} target tokens). Lower model.max_len, train a smaller model, or use "
                "another training.device."
            )
        self.limit.failed(split, part)
        if not self.sharing.can_begin_again(last):
            raise NoRoomError(
                f"The memory of {self.device} has no room for a micro-batch of {len(part.rows):,} sentences beside the "
                "model, and the other processes wait for it."
            )
        return False
