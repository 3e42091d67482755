"""One optimizer update: `grad_accum` micro-batches a process, one division by their target tokens, one step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from transformer_mt.config.schedules import make_schedule
from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.machine.cuda_graphs import CudaGraphs
from transformer_mt.machine.world import ALONE, World
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums, cross_entropy_sums
from transformer_mt.model.named_parts import freeze
from transformer_mt.model.transformer import Transformer
from transformer_mt.storage.weights import unique_weights
from transformer_mt.training.compiling import CompiledStep, uncompiled
from transformer_mt.training.memory.memory_parts import MemoryLimit, Part
from transformer_mt.training.memory.smaller_parts import SmallerParts
from transformer_mt.training.micro_batch import add_gradient, dropout_seed
from transformer_mt.training.moving_average import MovingAverage
from transformer_mt.training.pass_graphs import PassGraphs, can_be_captured
from transformer_mt.training.regularising.weight_decay import make_optimizer
from transformer_mt.training.resuming.checkpoints import TRAINED, optimizer_tensors, restore_optimizer
from transformer_mt.training.running_update import RunningUpdate, Sums, ToHost
from transformer_mt.training.sharing.alone import WithLoss
from transformer_mt.training.sharing.choose import share_model

SMALLEST_LOSS_SCALE = 1.0  # fp16: a gradient that overflows below it has another cause

RUNS_AHEAD = ("cuda",)  # devices; a test adds the CPU


class Updater:
    """Model and optimizer, and the step that moves them.

    N processes make an `update` together: process r computes the micro-batches r, r + N, r + 2N and so on. All get the
    same result and make the same step.

    `runs_ahead`: this process may order an update before it knows that the one before was finite. If it asked the GPU
    first, the GPU would be idle until the next update is ordered. fp16 cannot run ahead, because the next update needs
    the new scale of the loss.
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
        prior: Tensor | None = None,
    ) -> None:
        """`prior`: see `smoothing_prior`."""
        freeze(model, config.freeze)  # first, because DDP, FSDP and a compiler look at what is to be trained
        self.model = model
        self.world = world
        self.compiled = CompiledStep(model) if compiled else None
        self.sharing = share_model(model, config.sharding, world)
        if self.compiled:
            self.with_loss.cross_entropy = self.compiled.cross_entropy
        self.prior = None if prior is None else prior.to(device)
        self.with_loss.prior = self.prior
        self.config = config
        self.seed = seed
        self.precision = precision
        self.device = device
        self.schedule = make_schedule(config.schedule, config, model.config.d_model)
        self.optimizer = make_optimizer(model, config, device)
        self.average = (
            MovingAverage(model, config.ema_decay, self.sharing.local) if config.ema_decay is not None else None
        )
        self.limit = MemoryLimit(model.config, model.output.out_features)
        self.smaller_parts = SmallerParts(self.limit, self.sharing, self.optimizer, device)
        self.scaler = torch.GradScaler(device.type, enabled=precision == "fp16")
        self.graphs = self._graphs()
        if self.graphs is not None:
            self.smaller_parts.release = self.graphs.give_up
        self.runs_ahead = device.type in RUNS_AHEAD and not self.scaler.is_enabled()
        self._bad: Tensor | None = None  # where this runs ahead: 1 once an update was not finite

    def update(
        self,
        split: TrainingSplit,
        micro_batches: list[Rows],
        step: int,
        place: str,
        batch_of: Callable[[Part], Batch] | None = None,
    ) -> RunningUpdate:
        """Make update number `step` (from 1) on these rows of the split. `place` says where they stand, for messages.
        `batch_of` returns batches that were made ahead; by default the split makes them now.

        A micro-batch that does not fit the memory is computed in parts. Its gradient is the same, apart from what
        dropout draws and from the load-balancing loss of experts. Raises UserError where a single pair does not fit.
        Raises NotFiniteError, before any weight has changed, where loss or gradient is not finite (under fp16: at any
        scale). Where this updater `runs_ahead`, `result` raises that error, and no later update changes a weight.
        """
        self.model.train()
        self.limit.take_passes(self.config.consistency_at(step))
        num_tokens = int(sum(split.tgt_lengths[rows].sum() for rows in micro_batches))
        batch_of = batch_of or (lambda part: split.batch(part.rows))
        # The gradient is that of the sum of all losses / num_tokens, times the scale of fp16.
        sums = self._accumulate(split, micro_batches, step, num_tokens, batch_of)
        self.scaler.unscale_(self.optimizer)
        grad_norm = self.sharing.clip(self.config.clip_norm or float("inf"))
        scale = self.scaler.get_scale()
        running = RunningUpdate(
            step=step,
            place=place,
            split=split,
            micro_batches=micro_batches,
            sums=sums,
            num_tokens=num_tokens,
            lr=self.schedule(step),
            loss_scale=scale,
            # The scaler skips such a step and lowers its scale, as long as a lower one may help.
            may_overflow=self.scaler.is_enabled() and scale >= SMALLEST_LOSS_SCALE,
            balances_load=self.model.config.num_experts > 1,
            has_two_passes=self.config.consistency_at(step) is not None,
            own=ToHost(torch.cat((sums.loss, grad_norm.reshape(1)))),
            world=self.world,
        )
        if self.runs_ahead:
            self._stand_still_unless_finite(sums.loss[0], grad_norm)
        else:
            running.result()  # waits: no weight may change before loss and gradient are known to be finite
        for group in self.optimizer.param_groups:
            group["lr"] = running.lr
        self.scaler.step(self.optimizer)
        self.scaler.update()
        running.skipped = self.scaler.get_scale() < running.loss_scale
        if self.average is not None and not running.skipped:
            self.average.update(step)
        return running

    def _accumulate(
        self,
        split: TrainingSplit,
        micro_batches: list[Rows],
        step: int,
        num_tokens: int,
        batch_of: Callable[[Part], Batch],
    ) -> Sums:
        """Compute the gradient of the whole update, and return the sums of this process's micro-batches.

        The memory may run out in the middle of a backward pass, when half of a gradient is added. So everything then
        begins again without a gradient, in smaller parts.
        """
        consistency = self.config.consistency_at(step)

        def add(sums: Sums, part: Part, last: bool) -> None:
            batch = batch_of(part)
            seed = dropout_seed(self.seed, step, part.index, part.number)
            found = self.backward(batch, seed, num_tokens, last, float(part.number > 0), consistency)
            if part.number > 0:
                sums.add(part, batch, found)

        while True:
            self.optimizer.zero_grad(set_to_none=True)
            sums = Sums.none(self.device)
            *others, last_part = self.smaller_parts.own_parts(split, micro_batches)
            in_order = [*((part, False) for part in others), (last_part, True)]
            if all(self.smaller_parts.fits(split, part, last, add, sums, part, last) for part, last in in_order):
                return sums

    def backward(
        self,
        batch: Batch,
        seed: int,
        num_tokens: int,
        last: bool,
        weight: float = 1.0,
        consistency: ConsistencyConfig | None = None,
    ) -> LossSums:
        """Add the gradient of this batch's share in a loss over `num_tokens` tokens, times `weight`. Returns the sums
        of the batch. `last`: the gradient of the update is complete after this batch.
        """
        smoothing = self.config.label_smoothing
        if self.graphs is not None:
            if consistency is None:
                return self.graphs.add_gradient(batch, seed, weight / num_tokens)
            self.graphs.give_up()  # two passes at once need the memory, and all that follow are of two
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
                consistency,
            )

    def _stand_still_unless_finite(self, loss: Tensor, grad_norm: Tensor) -> None:
        """Where loss or norm is not finite in any process, make the optimizer's kernel change nothing in this update
        and in all later ones. The device finds that out long before this process can.
        """
        bad = torch.stack((loss, grad_norm)).isfinite().logical_not().any().float()
        bad = bad if self._bad is None else torch.maximum(bad, self._bad)
        self._bad = self.world.largest(bad)
        vars(self.optimizer)["found_inf"] = self._bad  # where torch's own scaler for fp16 puts it

    def go_uncompiled(self) -> None:
        """Compute without torch.compile from here on, because compiling failed."""
        if self.compiled:
            self.compiled.undo()
            self.compiled = self.graphs = None
            self.with_loss.cross_entropy = cross_entropy_sums

    def _graphs(self) -> PassGraphs | None:
        """Passes as graphs, which go with compiling: whoever does not want the one is spared the other."""
        if self.compiled is None or self.world.size > 1:
            return None
        model, precision = self.with_loss.model, self.precision
        if not isinstance(model, Transformer) or not can_be_captured(model, precision, self.device):
            return None
        return PassGraphs(model, self.with_loss, precision, self.config.label_smoothing, CudaGraphs(self.device))

    @property
    def with_loss(self) -> WithLoss:
        """The model with its loss, in whatever torch has wrapped around it."""
        return next(module for module in self.sharing.module.modules() if isinstance(module, WithLoss))

    @contextmanager
    def whole_model(self, weights: dict[str, Tensor] | None = None) -> Iterator[TranslationModel]:
        """The whole model in each process, uncompiled as in other commands, to be looked at and not changed. With
        `weights`, one that has these.
        """
        with uncompiled() if self.compiled else nullcontext(), self.sharing.whole_model(weights) as model:
            yield model

    @property
    def averages(self) -> dict[str, Tensor] | None:
        """The moving average of the weights, which is what a checkpoint translates with; None where there is none."""
        return None if self.average is None else self.average.weights

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and moments to save. They are whole in the first process; other processes may have parts of them.
        Where there are `averages`, they are the weights, and the trained weights are among the moments.
        """
        weights, moments = unique_weights(self.model), optimizer_tensors(self.model, self.optimizer)
        if self.averages is not None:
            moments |= {f"{name}.{TRAINED}": weight for name, weight in weights.items()}
            weights = self.averages
        return self.sharing.collected(weights), self.sharing.collected(moments)

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
        """The way back from `tensors`: what the first process has read goes into the models of all."""
        parameters: dict[str, Tensor] = dict(self.model.named_parameters())
        places = parameters if self.averages is None else self.averages
        parts = {}
        with torch.no_grad():
            for name, tensor in self.sharing.handed_out(weights):
                places[name].copy_(self.sharing.part(tensor, parameters[name]))
            for full, tensor in self.sharing.handed_out(moments):
                name, _, key = full.rpartition(".")
                part = self.sharing.part(tensor, parameters[name])
                if key == TRAINED:
                    parameters[name].copy_(part)
                else:
                    parts[full] = part
        restore_optimizer(self.model, self.optimizer, parts)
