"""An update that was ordered, which a GPU may still be computing, and what it came to."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transformer_mt.data.plan import TrainingSplit
from transformer_mt.machine.world import World
from transformer_mt.training.not_finite import NotFiniteError
from transformer_mt.training.parts import Part


@dataclass(frozen=True)
class UpdateResult:
    """Sums over the update's target tokens, and what was done with them. `num_cells` are positions, padding included.

    `num_split` micro-batches were computed in parts, for want of memory. `skipped`: under fp16 a gradient overflowed,
    and nothing was changed but the scale of the loss.
    """

    loss: float
    nll: float
    num_tokens: int
    num_padding: int
    num_cells: int
    grad_norm: float
    lr: float
    load_balancing: float | None
    num_split: int
    skipped: bool


class ToHost:
    """A few numbers on their way to the memory of the CPU. Nothing waits for them until they are asked for."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._arrived: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            # An event, since a question asked of the device later would wait for all that was ordered until then.
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(tensor.device))

    def tolist(self) -> list[float]:
        """The numbers, when they are there."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensor.tolist()


@dataclass
class RunningUpdate:
    """What is known of an update when it is ordered, and `own`, which the device will say: this process's loss, nll and
    load-balancing loss, and the norm of the gradient.

    `may_overflow`: under fp16, where the step is then skipped and the scale of the loss lowered.
    """

    step: int
    place: str
    split: TrainingSplit
    parts: list[Part]
    num_tokens: int
    num_cells: int
    num_padding: int
    num_split: int
    lr: float
    loss_scale: float
    may_overflow: bool
    balances_load: bool
    own: ToHost
    world: World
    skipped: bool = False
    _sums: list[float] = field(default_factory=list)

    def result(self) -> UpdateResult:
        """What it came to, the same in all processes, which all must ask. Raises NotFiniteError."""
        loss, nll, load_balancing, num_cells, num_padding, num_split, grad_norm = self._all_sums()
        return UpdateResult(
            loss=loss,
            nll=nll,
            num_tokens=self.num_tokens,
            num_padding=int(num_padding),
            num_cells=int(num_cells),
            grad_norm=grad_norm,
            lr=self.lr,
            load_balancing=load_balancing if self.balances_load else None,
            num_split=int(num_split),
            skipped=self.skipped,
        )

    def _all_sums(self) -> list[float]:
        """Sums over processes, and the norm of their gradient; asked of them once."""
        if not self._sums:
            *own_loss, grad_norm = self.own.tolist()
            sums = self.world.sum([*own_loss, self.num_cells, self.num_padding, self.num_split])
            if not self.may_overflow:
                self._refuse_not_finite(("loss", sums[0]), ("gradient norm", grad_norm))
            self._sums = [*sums, grad_norm]
        return self._sums

    def _refuse_not_finite(self, *values: tuple[str, float]) -> None:
        for what, value in values:
            if not math.isfinite(value):
                parts = [part for parts in self.world.gather(self.parts) for part in parts]
                parts.sort(key=lambda part: part.index)
                raise NotFiniteError(
                    what, value, self.step, self.place, self.split, parts, self.num_tokens, self.loss_scale
                )
