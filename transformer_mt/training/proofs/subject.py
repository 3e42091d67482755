"""What is proved something of: a copy of the model without dropout, a few pairs, and the loss that is trained on."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer_mt.config.special_ids import PAD_ID, UNK_ID
from transformer_mt.data.batches.batching import Batch, Rows
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.machine.device import autocast
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.sharing.alone import WithLoss
from transformer_mt.training.updates import Updater

NUM_PAIRS = 4
LOOKED_AT = 64  # micro-batches, among whose pairs the few are chosen
FEW_TOKENS = 4  # a side with fewer, EOS counted, has hardly a later position that could be seen
CHANCE = ("dropout", "attention_dropout", "activation_dropout", "src_word_dropout", "tgt_word_dropout", "layer_drop")


class Failure(NamedTuple):
    """What does not hold, as a clause, and the module where it begins."""

    what: str
    where: str


@dataclass(frozen=True)
class Subject:
    """`model` may be changed. `precision` is that of the training."""

    model: TranslationModel
    batch: Batch
    precision: str
    with_loss: WithLoss
    label_smoothing: float

    @property
    def device(self) -> torch.device:
        """That of model and batch."""
        return self.batch.src.device

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those in which outputs are compared: fp32, which shows the most, and the training's. Rounding to fewer digits
        may send a token to another expert, so with experts it is fp32 alone.
        """
        more = self.precision != "fp32" and self.model.config.num_experts == 1
        return ("fp32", self.precision) if more else ("fp32",)

    def loss(self, precision: str) -> Tensor:
        """The loss of the batch a target token, as training computes it."""
        self.model.train()
        with autocast(precision, self.device):
            return self.with_loss(self.batch, self.label_smoothing).loss / self.batch.num_tokens


@contextmanager
def subject(updater: Updater, model: TranslationModel, batch: Batch) -> Iterator[Subject]:
    """The subject with a copy of `model`, the whole one of `updater`. Outside nothing is changed: weights, gradients,
    generators. On a GPU float32 is meant exactly while inside.
    """
    devices = range(torch.cuda.device_count()) if updater.device.type == "cuda" else ()
    with torch.random.fork_rng(devices), _exact(updater.device):
        without = _without_dropout(copy.deepcopy(model))
        with_loss = WithLoss(without)
        with_loss.prior = updater.prior
        smoothing = updater.config.label_smoothing
        yield Subject(without, batch.to(updater.device), updater.precision, with_loss, smoothing)


@contextmanager
def _exact(device: torch.device) -> Iterator[None]:
    """While inside, a GPU computes products of float32 with all of their digits, which cuDNN does not by itself."""
    if device.type != "cuda":
        yield
        return
    products, recurrent = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = recurrent


def _without_dropout(model: TranslationModel) -> TranslationModel:
    """The model, changed so that in training it draws nothing."""
    model.config = model.config.model_copy(update=dict.fromkeys(CHANCE, 0.0))
    for module in model.modules():
        for name in ("p", "dropout", "layer_drop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def few_pairs(split: TrainingSplit, micro_batches: list[Rows], skipped: int = 0) -> Batch:
    """A few of the planned pairs, short ones of unequal length, padded by more on one side than on the other: their
    lengths tell the tensors of both sides apart. `skipped`: other pairs.
    """
    rows = np.concatenate(micro_batches[:LOOKED_AT])
    src_lengths, tgt_lengths = split.src_lengths[rows], split.tgt_lengths[rows]
    enough = np.minimum(src_lengths, tgt_lengths) >= FEW_TOKENS
    if enough.sum() >= 2:
        rows, src_lengths, tgt_lengths = rows[enough], src_lengths[enough], tgt_lengths[enough]
    rows = rows[np.argsort(src_lengths + tgt_lengths, kind="stable")]
    places = np.linspace(0, len(rows) // 2, NUM_PAIRS).astype(int) + skipped
    batch = split.batch(rows[np.unique(np.minimum(places, len(rows) - 1))])
    if batch.src is batch.tgt_in:  # of an encoder alone, whose sides are one
        return batch
    if batch.src.size(1) == 1:
        batch = _with_words(batch)
    return batch.widened(int(batch.src.size(1) == batch.tgt_in.size(1)), 0)


def _with_words(batch: Batch) -> Batch:
    """One or two unknown words before EOS, where every source is empty, as under `noise: causal`. An attention to one
    key gives it all the weight, whatever the query, so that neither of both has a gradient.
    """
    words = torch.full((len(batch.src), 2), UNK_ID)
    src = torch.cat((words, batch.src), dim=1)
    src[::2] = src[::2].roll(-1, dims=1)
    src[::2, -1] = PAD_ID
    return Batch.of(src, batch.tgt_in, batch.tgt_out)


def select(batch: Batch, rows: list[int]) -> Batch:
    """These sentences of the batch, as wide as it is."""
    src, tgt_in, tgt_out = (ids[rows].cpu() for ids in (batch.src, batch.tgt_in, batch.tgt_out))
    return Batch.of(src, tgt_in, tgt_out).to(batch.src.device)


def lengths(batch: Batch) -> Tensor:
    """(batch,): the target tokens of each sentence."""
    per_row = torch.bincount(batch.real // batch.tgt_out.size(1), minlength=len(batch.src))
    return per_row.to(batch.src.device)
