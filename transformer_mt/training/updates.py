"""One optimizer update: `grad_accum` micro-batches a process, one division by their target tokens, one step."""

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
from transformer_mt.model.loss import CrossEntropy, LossSums, cross_entropy_sums
from transformer_mt.training.checkpoints import optimizer_tensors, restore_optimizer
from transformer_mt.training.compiling import CompiledStep, uncompiled
from transformer_mt.training.micro_batch import add_gradient, dropout_seed, goes_unpadded
from transformer_mt.training.parts import MemoryLimit, Part
from transformer_mt.training.running_update import RunningUpdate, ToHost
from transformer_mt.training.schedule import make_schedule
from transformer_mt.training.sharing import share_model
from transformer_mt.training.unshared import WithLoss

SMALLEST_LOSS_SCALE = 1.0  # fp16: gradients that overflow even below it do so for another reason

RUNS_AHEAD = ("cuda",)  # devices; a test adds the CPU


class NoRoomError(Exception):
    """The memory ran out where the update cannot begin again in smaller parts; the updater's limit knows of it."""


@dataclass
class _Sums:
    """What the micro-batches of an update come to; `loss` is (3,): loss, nll, load-balancing loss."""

    loss: Tensor
    parts: list[Part] = field(default_factory=list)
    num_cells: int = 0
    num_padding: int = 0

    @property
    def num_split(self) -> int:
        """Micro-batches that were computed in parts."""
        return len({part.index for part in self.parts if part.number > 1})

    def add(self, part: Part, batch: Batch, loss: Tensor) -> None:
        self.loss += loss
        self.parts.append(part)
        self.num_cells += batch.num_cells
        self.num_padding += batch.num_padding


class Updater:
    """Model and optimizer, and the step that moves them.

    Where several processes make an `update`, each computes every so-manieth of its micro-batches; all get the same
    result, and make the same step.

    `runs_ahead`: this process may order an update before it knows that the one before was finite. A GPU that had to be
    asked in between would have nothing to do until the next one is ordered. Not under fp16, where the next scale of the
    loss has to be known.
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
        if self.compiled:
            self._take_cross_entropy(self.compiled.cross_entropy)
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
        self.runs_ahead = device.type in RUNS_AHEAD and not self.scaler.is_enabled()
        self._bad: Tensor | None = None  # 1 from an update on that was not finite, on a device that we run ahead of

    def update(
        self,
        split: TrainingSplit,
        micro_batches: list[Rows],
        step: int,
        place: str,
        batch_of: Callable[[Part], Batch] | None = None,
    ) -> RunningUpdate:
        """Update number `step` (from 1) on these rows of the split. `place` says where they stand, for messages.
        `batch_of` has the batches at hand that the split would have to make.

        A micro-batch that does not fit the memory is computed in parts: the same gradient, but for what dropout draws
        and for the load-balancing loss of experts. Raises UserError where one pair does not fit, and NotFiniteError,
        before anything has moved, where loss or gradient is not finite (under fp16 where they are at no scale). Where
        this updater `runs_ahead`, the latter is raised when the result is asked for, and nothing moves from then on.
        """
        self.model.train()
        num_tokens = int(sum(split.tgt_lengths[rows].sum() for rows in micro_batches))
        batch_of = batch_of or (lambda part: split.batch(part.rows))
        own = self._accumulate(split, micro_batches, step, num_tokens, batch_of)
        scale = self.scaler.get_scale()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or float("inf"))
        grad_norm = self.sharing.whole(norm)
        running = RunningUpdate(
            step=step,
            place=place,
            split=split,
            parts=own.parts,
            num_tokens=num_tokens,
            num_cells=own.num_cells,
            num_padding=own.num_padding,
            num_split=own.num_split,
            lr=self.schedule(step),
            loss_scale=scale,
            # Its scaler skips such a step and lowers the scale, as far as that may help.
            may_overflow=self.scaler.is_enabled() and scale >= SMALLEST_LOSS_SCALE,
            balances_load=self.model.config.num_experts > 1,
            own=ToHost(torch.cat((own.loss, grad_norm.reshape(1)))),
            world=self.world,
        )
        if self.runs_ahead:
            self._stand_still_unless_finite(own.loss[0], grad_norm)
        else:
            running.result()  # waits for the device: nothing may move before these are known to be finite
        for group in self.optimizer.param_groups:
            group["lr"] = running.lr
        self.scaler.step(self.optimizer)
        self.scaler.update()
        running.skipped = self.scaler.get_scale() < scale
        return running

    def _stand_still_unless_finite(self, loss: Tensor, grad_norm: Tensor) -> None:
        """Tell the optimizer's kernel to change nothing, in this update and in all that follow, where one of these is
        not finite in any process. The device knows that long before this process does.
        """
        bad = torch.stack((loss, grad_norm)).isfinite().logical_not().any().float()
        bad = bad if self._bad is None else torch.maximum(bad, self._bad)
        self._bad = self.world.largest(bad)
        vars(self.optimizer)["found_inf"] = self._bad  # where torch's own scaler for fp16 puts it

    def go_uncompiled(self) -> None:
        """From here on, where compiling failed."""
        if self.compiled:
            self.compiled.undo()
            self.compiled = None
            self._take_cross_entropy(cross_entropy_sums)

    def _take_cross_entropy(self, cross_entropy: CrossEntropy) -> None:
        for module in self.sharing.module.modules():
            if isinstance(module, WithLoss):
                module.cross_entropy = cross_entropy

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
        batch = self.compiled.widened(batch) if self.compiled else batch
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
