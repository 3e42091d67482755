"""One optimizer update: `grad_accum` micro-batches, one division by their target tokens, one step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from transformer_mt.config.schema import TrainingConfig
from transformer_mt.data.batching import Rows
from transformer_mt.data.preparation import Split
from transformer_mt.errors import UserError
from transformer_mt.machine.device import autocast
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import batch_loss
from transformer_mt.training.schedule import make_schedule

SMALLEST_LOSS_SCALE = 1.0  # fp16: gradients that overflow even below it do so for another reason


@dataclass(frozen=True)
class UpdateResult:
    """Sums over the update's target tokens, and what was done with them. `cells` are positions, padding included."""

    loss: float
    nll: float
    num_tokens: int
    padded_cells: float
    cells: int
    grad_norm: float
    lr: float
    load_balancing: float | None


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
        self.scaler = torch.GradScaler(device.type, enabled=precision == "fp16")

    def update(self, split: Split, micro_batches: list[Rows], step: int, place: str) -> UpdateResult:
        """Update number `step` (from 1) on these rows of the split. `place` says where they stand, for messages.

        Raises UserError, before anything has moved, where loss or gradient is not finite.
        """
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        tgt_lengths = split.tgt_lengths
        num_tokens = int(sum(tgt_lengths[rows].sum() for rows in micro_batches))
        sums = torch.zeros(3, device=self.device)
        cells, padded_cells = 0, 0.0
        for index, rows in enumerate(micro_batches):
            torch.manual_seed(dropout_seed(self.seed, step, index))
            batch = split.batch(rows)
            cells += (size := batch.src.numel() + batch.tgt_out.numel())
            padded_cells += batch.padding_share() * size
            batch = batch.to(self.device)
            with autocast(self.precision, self.device):
                loss = batch_loss(self.model, batch.src, batch.tgt_in, batch.tgt_out, self.config.label_smoothing)
            self.scaler.scale(loss.loss / num_tokens).backward()
            balance = torch.zeros_like(loss.nll) if loss.load_balancing is None else loss.load_balancing
            sums += torch.stack((loss.loss.detach(), loss.nll.detach(), balance))
        total_loss, total_nll, total_balance = sums.tolist()
        self._refuse_unless_finite("loss", total_loss, step, place, split, micro_batches)
        self.scaler.unscale_(self.optimizer)
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or float("inf")).item()
        if not self.scaler.is_enabled():  # fp16's scaler skips such a step and lowers the scale
            self._refuse_unless_finite("gradient norm", grad_norm, step, place, split, micro_batches)
        lr = self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.is_enabled() and self.scaler.get_scale() < SMALLEST_LOSS_SCALE:
            self._refuse_unless_finite("gradient norm", grad_norm, step, place, split, micro_batches)
        load_balancing = total_balance if self.model.config.num_experts > 1 else None
        return UpdateResult(total_loss, total_nll, num_tokens, padded_cells, cells, grad_norm, lr, load_balancing)

    def _refuse_unless_finite(
        self, what: str, value: float, step: int, place: str, split: Split, micro_batches: list[Rows]
    ) -> None:
        if np.isfinite(value):
            return
        first = split.corpus.where(int(split.rows[micro_batches[0][0]]))
        raise UserError(
            f"The {what} is {value} at step {step:,} ({place}; its first pair is {first}), so the training stops; "
            "nothing was changed by this step and the checkpoints are as they were. "
            "Lower the learning rate (training.factor or training.lr), lengthen training.warmup_steps, "
            "or set training.precision: fp32."
        )


def dropout_seed(seed: int, step: int, index: int) -> int:
    """The seed of torch's generators for micro-batch `index` of update `step`, whoever computes it."""
    return int(np.random.SeedSequence((seed, step, index)).generate_state(1, np.uint64)[0])
