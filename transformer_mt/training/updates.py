"""One optimizer update: `grad_accum` micro-batches, one division by their target tokens, one step."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.schema import TrainingConfig
from transformer_mt.data.batching import Batch, Rows
from transformer_mt.data.preparation import Split
from transformer_mt.errors import UserError
from transformer_mt.machine.memory import free_cached_memory, is_out_of_memory
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums
from transformer_mt.training.micro_batch import add_gradient, dropout_seed
from transformer_mt.training.not_finite import NotFiniteError
from transformer_mt.training.parts import MemoryLimit, Part
from transformer_mt.training.schedule import make_schedule

SMALLEST_LOSS_SCALE = 1.0  # fp16: gradients that overflow even below it do so for another reason


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

    def add(self, part: Part, batch: Batch, loss: Tensor) -> None:
        size = batch.src.numel() + batch.tgt_out.numel()
        self.loss += loss
        self.parts.append(part)
        self.cells += size
        self.padded_cells += batch.padding_share() * size


class Updater:
    """Model and optimizer, and the step that moves them."""

    def __init__(
        self, model: TranslationModel, config: TrainingConfig, seed: int, precision: str, device: torch.device
    ) -> None:
        self.model = model
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

    def update(self, split: Split, micro_batches: list[Rows], step: int, place: str) -> UpdateResult:
        """Update number `step` (from 1) on these rows of the split. `place` says where they stand, for messages.

        A micro-batch that does not fit the memory is computed in parts: the same gradient, but for what dropout draws
        and for the load-balancing loss of experts. Raises NotFiniteError, before anything has moved, where loss or
        gradient is not finite (under fp16 where they are at no scale), and UserError where one pair does not fit.
        """
        self.model.train()
        num_tokens = int(sum(split.tgt_lengths[rows].sum() for rows in micro_batches))
        sums = self._accumulate(split, micro_batches, step, num_tokens)
        loss, nll, load_balancing = sums.loss.tolist()
        scale = self.scaler.get_scale()
        self.scaler.unscale_(self.optimizer)
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or float("inf")).item()
        # fp16's scaler skips such a step and lowers the scale, as far as that may help.
        if not self.scaler.is_enabled() or scale < SMALLEST_LOSS_SCALE:
            for what, value in (("loss", loss), ("gradient norm", grad_norm)):
                if not math.isfinite(value):
                    raise NotFiniteError(what, value, step, place, split, sums.parts, num_tokens, scale)
        lr = self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return UpdateResult(
            loss=loss,
            nll=nll,
            num_tokens=num_tokens,
            padded_cells=sums.padded_cells,
            cells=sums.cells,
            grad_norm=grad_norm,
            lr=lr,
            load_balancing=load_balancing if self.model.config.num_experts > 1 else None,
            num_split=len({part.index for part in sums.parts if part.number > 1}),
            skipped=self.scaler.get_scale() < scale,
        )

    def probe(self, split: Split, plan: list[Rows]) -> Rows | None:
        """Try the largest of the planned micro-batches (see `MemoryLimit`): forward and backward pass, no step, and
        everything left as it was. Returns it where it does not fit: `update` then splits what is as large from the
        start. Raises UserError where not one pair fits.
        """
        self.model.train()
        largest = self.limit.largest(split, plan)
        part = Part(0, largest)
        # The generators are seeded anew for every micro-batch: this is only to leave no trace.
        with torch.random.fork_rng(range(torch.cuda.device_count()) if self.device.type == "cuda" else ()):
            while not self._fits(split, part, self._rehearse, split.batch(part.rows)):
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
        self._backward(batch, dropout_seed(self.seed, 0, 0), num_tokens=batch.num_tokens)
        del moments

    def _accumulate(self, split: Split, micro_batches: list[Rows], step: int, num_tokens: int) -> _Sums:
        """The gradient of the whole update, from none. Where the memory runs out, it may do so in the middle of a
        backward pass, with a gradient half added; so all begins again, in smaller parts.
        """
        whole = [Part(index, rows) for index, rows in enumerate(micro_batches)]
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            sums = _Sums(torch.zeros(3, device=self.device))
            pieces = [piece for part in whole for piece in self.limit.pieces(split, part)]
            for part in pieces:
                if not self._fits(split, part, self._add_part, sums, split.batch(part.rows), part, step, num_tokens):
                    break
            else:
                return sums

    def _add_part(self, sums: _Sums, batch: Batch, part: Part, step: int, num_tokens: int) -> None:
        loss = self._backward(batch, dropout_seed(self.seed, step, part.index, part.number), num_tokens)
        balance = torch.zeros_like(loss.nll) if loss.load_balancing is None else loss.load_balancing
        sums.add(part, batch, torch.stack((loss.loss, loss.nll, balance)))

    def _backward(self, batch: Batch, seed: int, num_tokens: int) -> LossSums:
        smoothing = self.config.label_smoothing
        return add_gradient(self.model, batch, seed, self.precision, smoothing, num_tokens, self.scaler)

    def _fits(self, split: Split, part: Part, work: Callable[..., None], *arguments: Any) -> bool:
        """Do the work on a part. Where the memory has no room for it, note that, drop all gradients and return False.

        Raises UserError where the part is one pair.
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
                f"{split.corpus.where(int(split.rows[row]))}: {split.src_lengths[row]:,} source and "
                f"{split.tgt_lengths[row]:,} target tokens). Lower model.max_len, train a smaller model, or use "
                "another training.device."
            )
        self.limit.failed(split, part)
        return False
