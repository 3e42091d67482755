"""An update that was ordered: a GPU may still be computing it, and its result is asked for later."""

import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.machine.world import World
from transformer_mt.model.loss import LossSums
from transformer_mt.training.debugging.not_finite import NotFiniteError
from transformer_mt.training.memory.memory_parts import Part


@dataclass(frozen=True)
class UpdateResult:
    """Sums over the target tokens of an update, and what became of it. `num_cells` counts positions, padding included.

    `num_split` micro-batches were computed in parts because the memory had no room for them. `skipped`: under fp16 a
    gradient overflowed, so the update changed nothing but the scale of the loss.
    """

    loss: float
    nll: float
    num_tokens: int
    num_padding: int
    num_cells: int
    grad_norm: float
    lr: float
    load_balancing: float | None
    divergence: float | None
    num_split: int
    skipped: bool


class ToHost:
    """A few numbers on their way to the memory of the CPU. Nothing waits for them until `tolist` is called."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._arrived: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            # An event: to read the numbers from the device later would wait for everything ordered until then.
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(tensor.device))

    def tolist(self) -> list[float]:
        """Wait for the numbers and return them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensor.tolist()


@dataclass
class Sums:
    """The sums over one process's micro-batches of an update. `loss` (4,) is loss, nll, load-balancing loss and
    divergence.
    """

    loss: Tensor
    parts: list[Part] = field(default_factory=list)
    num_cells: int = 0
    num_padding: int = 0

    @classmethod
    def none(cls, device: torch.device) -> Self:
        """The sums before the first micro-batch."""
        return cls(torch.zeros(4, device=device))

    @property
    def num_split(self) -> int:
        """How many micro-batches were computed in parts."""
        return len({part.index for part in self.parts if part.number > 1})

    def add(self, part: Part, batch: Batch, sums: LossSums) -> None:
        """Count one more part."""
        more = [torch.zeros_like(sums.nll) if s is None else s for s in (sums.load_balancing, sums.divergence)]
        self.loss += torch.stack((sums.loss, sums.nll, *more))
        self.parts.append(part)
        self.num_cells += batch.num_cells
        self.num_padding += batch.num_padding


@dataclass
class RunningUpdate:
    """An update as it was ordered. The device is still to say `own`: this process's loss, nll, load-balancing loss
    and divergence, and the norm of the gradient.

    `may_overflow`: under fp16 an overflow is no error, because the scaler then skips the step and lowers its scale.
    """

    step: int
    place: str
    split: TrainingSplit
    micro_batches: list[Rows]
    sums: Sums
    num_tokens: int
    lr: float
    loss_scale: float
    may_overflow: bool
    balances_load: bool
    has_two_passes: bool
    own: ToHost
    world: World
    skipped: bool = False
    _total: list[float] = field(default_factory=list)

    def result(self) -> UpdateResult:
        """Wait for the update and return its sums over all processes. Every process must call this; all get the same
        result. Raises NotFiniteError.
        """
        loss, nll, load_balancing, divergence, num_cells, num_padding, num_split, grad_norm = self._all_sums()
        return UpdateResult(
            loss=loss,
            nll=nll,
            num_tokens=self.num_tokens,
            num_padding=int(num_padding),
            num_cells=int(num_cells),
            grad_norm=grad_norm,
            lr=self.lr,
            load_balancing=load_balancing if self.balances_load else None,
            divergence=divergence if self.has_two_passes else None,
            num_split=int(num_split),
            skipped=self.skipped,
        )

    def _all_sums(self) -> list[float]:
        """The sums over all processes, then the norm of their gradient. The processes exchange them only once."""
        if not self._total:
            *own_loss, grad_norm = self.own.tolist()
            own = self.sums
            sums = self.world.sum([*own_loss, own.num_cells, own.num_padding, own.num_split])
            if not self.may_overflow:
                self._refuse_not_finite(("loss", sums[0]), ("gradient norm", grad_norm))
            self._total = [*sums, grad_norm]
        return self._total

    def _refuse_not_finite(self, *values: tuple[str, float]) -> None:
        for what, value in values:
            if not math.isfinite(value):
                parts = [part for parts in self.world.gather(self.sums.parts) for part in parts]
                parts.sort(key=lambda part: part.index)
                raise NotFiniteError(
                    what, value, self.step, self.place, self.split, parts, self.num_tokens, self.loss_scale
                )
