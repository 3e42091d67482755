"""One optimizer update: `grad_accum` micro-batches a process, one division by their target tokens, one step."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.schema import TrainingConfig
from transformer_mt.data.batching import Batch, Rows
from transformer_mt.data.plan import TrainingSplit
from transformer_mt.decoding.weights import unique_weights
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import free_cached_memory, is_out_of_memory
from transformer_mt.machine.world import ALONE, World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums
from transformer_mt.training.checkpoints import optimizer_tensors, restore_optimizer
from transformer_mt.training.compiling import CompiledStep, uncompiled
from transformer_mt.training.micro_batch import add_gradient, dropout_seed, goes_unpadded
from transformer_mt.training.not_finite import NotFiniteError
from transformer_mt.training.parts import MemoryLimit, Part
from transformer_mt.training.schedule import make_schedule
from transformer_mt.training.sharing import WithLoss, share_model

SMALLEST_LOSS_SCALE = 1.0  # fp16: gradients that overflow even below it do so for another reason


class NoRoomError(Exception):
    """The memory ran out where the update cannot begin again in smaller parts; the updater's limit knows of it."""


@dataclass(frozen=True)
class UpdateResult:
    """Sums over the update's target tokens, and what was done with them. `cells` are positions, padding included.

    `num_split` micro-batches were computed in parts, for want of memory. `skipped`: under fp16 a gradient overflowed,
    and nothing was changed but the scale of the loss.
    """

    loss: float
    nll: float
    num_tokens: int
    padded_cells: float
    cells: int
    grad_norm: float
    lr: float
    load_balancing: float | None
    num_split: int
    skipped: bool


@dataclass
class _Sums:
    """What the micro-batches of an update come to; `loss` is (3,): loss, nll, load-balancing loss."""

    loss: Tensor
    parts: list[Part] = field(default_factory=list)
    cells: int = 0
    padded_cells: float = 0.0

    @property
    def num_split(self) -> int:
        """Micro-batches that were computed in parts."""
        return len({part.index for part in self.parts if part.number > 1})

    def add(self, part: Part, batch: Batch, loss: Tensor) -> None:
        self.loss += loss
        self.parts.append(part)
        self.cells += batch.num_cells
        self.padded_cells += batch.padding_share() * batch.num_cells


class Updater:
    """Model and optimizer, and the step that moves them.

    Where several processes make an `update`, each computes every so-manieth of its micro-batches; all get the same
    result, and make the same step.
    """

    def __init__(
        self,
        model: TranslationModel,
        config: TrainingConfig,
        seed: int,
        precision: str,
        device: torch.device,
        world: World = ALONE,
        compiled: bool = False,
    ) -> None:
        self.model = model
        self.world = world
        self.compiled = CompiledStep(model) if compiled else None
        self.sharing = share_model(model, config.sharding, world)
        for module in self.sharing.module.modules():
            if self.compiled and isinstance(module, WithLoss):
                module.cross_entropy = self.compiled.cross_entropy
        self.config = config
        self.seed = seed
        self.precision = precision
        self.device = device
        self.schedule = make_schedule(config, model.config.d_model)
        beta1, beta2 = config.adam_betas
        # The fused kernel does in one pass over memory what the loop over parameters does in a dozen.
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=0.0, betas=(beta1, beta2), eps=config.adam_eps, fused=device.type in ("cpu", "cuda")
        )
        self.limit = MemoryLimit(model.config, model.output.out_features)
        self.scaler = torch.GradScaler(device.type, enabled=precision == "fp16")

    def update(
        self,
        split: TrainingSplit,
        micro_batches: list[Rows],
        step: int,
        place: str,
        batch_of: Callable[[Part], Batch] | None = None,
    ) -> UpdateResult:
        """Update number `step` (from 1) on these rows of the split. `place` says where they stand, for messages.
        `batch_of` has the batches at hand that the split would have to make.

        A micro-batch that does not fit the memory is computed in parts: the same gradient, but for what dropout draws
        and for the load-balancing loss of experts. Raises NotFiniteError, before anything has moved, where loss or
        gradient is not finite (under fp16 where they are at no scale), and UserError where one pair does not fit.
        """
        self.model.train()
        num_tokens = int(sum(split.tgt_lengths[rows].sum() for rows in micro_batches))
        batch_of = batch_of or (lambda part: split.batch(part.rows))
        own = self._accumulate(split, micro_batches, step, num_tokens, batch_of)
        scale = self.scaler.get_scale()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or float("inf"))
        # The one place of an update that waits for the device: nothing may move before these are known to be finite.
        *own_loss, grad_norm = torch.cat((own.loss, self.sharing.whole(norm).reshape(1))).tolist()
        loss, nll, load_balancing, cells, padded_cells, num_split = self.world.sum(
            [*own_loss, own.cells, own.padded_cells, own.num_split]
        )
        # fp16's scaler skips such a step and lowers the scale, as far as that may help.
        if not self.scaler.is_enabled() or scale < SMALLEST_LOSS_SCALE:
            for what, value in (("loss", loss), ("gradient norm", grad_norm)):
                if not math.isfinite(value):
                    parts = [part for parts in self.world.gather(own.parts) for part in parts]
                    parts.sort(key=lambda part: part.index)
                    raise NotFiniteError(what, value, step, place, split, parts, num_tokens, scale)
        lr = self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return UpdateResult(
            loss=loss,
            nll=nll,
            num_tokens=num_tokens,
            padded_cells=padded_cells,
            cells=int(cells),
            grad_norm=grad_norm,
            lr=lr,
            load_balancing=load_balancing if self.model.config.num_experts > 1 else None,
            num_split=int(num_split),
            skipped=self.scaler.get_scale() < scale,
        )

    @property
    def goes_unpadded(self) -> bool:
        """Whether layers see no padding, for which dropout then draws nothing."""
        return goes_unpadded(self.model, self.precision)

    @contextmanager
    def whole_model(self) -> Iterator[TranslationModel]:
        """All of the model, to be looked at by each process for itself, and not compiled, as other commands have it."""
        with uncompiled() if self.compiled else nullcontext(), self.sharing.whole_model() as model:
            yield model

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and moments, to be saved: whole in the first process, whatever is there in the others."""
        moments = optimizer_tensors(self.model, self.optimizer)
        return self.sharing.collected(unique_weights(self.model)), self.sharing.collected(moments)

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
        """The way back from `tensors`: from those of the first process, in all of them."""
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in self.sharing.handed_out(weights):
                parameters[name].copy_(self.sharing.part(tensor, parameters[name]))
        parts = {
            full: self.sharing.part(tensor, parameters[full.rpartition(".")[0]])
            for full, tensor in self.sharing.handed_out(moments)
        }
        restore_optimizer(self.model, self.optimizer, parts)

    def probe(self, split: TrainingSplit, plan: list[Rows]) -> Rows | None:
        """Try the largest of the planned micro-batches (see `MemoryLimit`): forward and backward pass, no step, and
        everything left as it was. Returns it where it does not fit: `update` then splits what is as large from the
        start. Raises UserError where not one pair fits, or where it does not fit and the model is sharded.
        """
        self.model.train()
        largest = self.limit.largest(split, plan)
        part = next(self.limit.pieces(split, Part(0, largest)))
        # The generators are seeded anew for every micro-batch: this is only to leave no trace.
        with torch.random.fork_rng(range(torch.cuda.device_count()) if self.device.type == "cuda" else ()):
            while not self._fits(split, part, False, self._rehearse, split.batch(part.rows)):
                part = Part(0, self.limit.largest(split, [half.rows for half in part.halves()]), 2 * part.number)
        self.optimizer.zero_grad(set_to_none=True)
        return largest if part.number > 1 else None

    def _rehearse(self, batch: Batch) -> None:
        """A pass beside what stands in memory later: Adam's two moments, and a gradient that is being added to."""
        parameters = list(self.model.parameters())
        moments = [] if self.optimizer.state else [torch.empty_like(parameter) for parameter in parameters * 2]
        if self.config.grad_accum > 1:
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
        self._backward(batch, dropout_seed(self.seed, 0, 0), batch.num_tokens, last=False)
        del moments

    def _accumulate(
        self,
        split: TrainingSplit,
        micro_batches: list[Rows],
        step: int,
        num_tokens: int,
        batch_of: Callable[[Part], Batch],
    ) -> _Sums:
        """The gradient of the whole update, from none, and the sums of this process's micro-batches. Where the memory
        runs out, it may do so in the middle of a backward pass, with a gradient half added; so all begins again, in
        smaller parts.
        """
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            sums = _Sums(torch.zeros(3, device=self.device))
            pieces = self._share(split, micro_batches)
            for i, part in enumerate(pieces, start=1):
                last = i == len(pieces)
                work = (self._add_part, sums, batch_of, part, step, num_tokens, last)
                if not self._fits(split, part, last, *work):
                    break
            else:
                return sums

    def _share(self, split: TrainingSplit, micro_batches: list[Rows]) -> list[Part]:
        """This process's micro-batches, in pieces that fit; as many as any other has, filled up with what counts
        nothing.
        """
        parts = [Part(index, rows) for index, rows in enumerate(micro_batches)]
        shares = [
            [piece for part in parts[rank :: self.world.size] for piece in self.limit.pieces(split, part)]
            for rank in range(self.world.size)
        ]
        mine = shares[self.world.rank]
        missing = max(map(len, shares)) - len(mine)
        return mine + missing * [Part(0, micro_batches[0][:1], number=0)]

    def _add_part(
        self, sums: _Sums, batch_of: Callable[[Part], Batch], part: Part, step: int, num_tokens: int, last: bool
    ) -> None:
        batch = batch_of(part)
        seed = dropout_seed(self.seed, step, part.index, part.number)
        if part.number == 0:
            self._backward(batch, seed, num_tokens, last, weight=0.0)
            return
        loss = self._backward(batch, seed, num_tokens, last)
        balance = torch.zeros_like(loss.nll) if loss.load_balancing is None else loss.load_balancing
        sums.add(part, batch, torch.stack((loss.loss, loss.nll, balance)))

    def _backward(self, batch: Batch, seed: int, num_tokens: int, last: bool, weight: float = 1.0) -> LossSums:
        smoothing = self.config.label_smoothing
        with self.sharing.passing(last):
            return add_gradient(
                self.sharing.module,
                batch,
                seed,
                self.precision,
                smoothing,
                num_tokens,
                self.scaler,
                weight * self.sharing.weight,
            )

    def _fits(self, split: TrainingSplit, part: Part, last: bool, work: Callable[..., None], *arguments: Any) -> bool:
        """Do the work on a part. Where the memory has no room for it, note that, drop all gradients and return False.

        Raises UserError where the part is one pair, and NoRoomError where other processes wait for it.
        """
        try:
            work(*arguments)
            return True
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Only here, where the error is gone and with it the frames that hold activations.
        self.optimizer.zero_grad(set_to_none=True)
        free_cached_memory(self.device)
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
