"""An update computed once more, while the outputs and gradients of every module are measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_mt.data.batches.batching import Batch
from transformer_mt.inspect.hooks import hooked
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.unpadded import Unpadded
from transformer_mt.training.debugging.update_record import UpdateRecord
from transformer_mt.training.micro_batch import add_gradient, computed_with, dropout_seed
from transformer_mt.training.sharing.alone import WithLoss

# The modules whose tokens are those of the source.
SOURCE_STACK = "encoder"
MEMORY_READERS = ("cross_attn.k_proj", "cross_attn.v_proj")
TABLE = "embedder.embedding"


@dataclass(frozen=True)
class Measured:
    """Figures of a tensor: the largest magnitude among its finite elements, the norm of all, how many are not finite,
    and in which rows of the batch those are, where that is known.
    """

    name: str
    shape: tuple[int, ...]
    max_abs: float
    norm: float
    num_not_finite: int
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class MicroBatchReplay:
    """`origins` say where the pairs come from. `loss` and `nll` are sums. `outputs` are those of the modules, in the
    order in which they returned. `backward` are the gradients of these outputs, times the loss scale, in the order in
    which they came.
    """

    batch: Batch
    origins: list[str]
    loss: float
    nll: float
    outputs: list[Measured]
    backward: list[Measured]


@dataclass(frozen=True)
class Replay:
    """`weights` and `gradients` go by parameter. The gradients are those of the whole update, before clipping."""

    computed_with: dict[str, str | int | bool]
    weights: list[Measured]
    micro_batches: list[MicroBatchReplay]
    gradients: list[Measured]

    @property
    def grad_norm(self) -> float:
        """The norm of all gradients as one vector."""
        return float(torch.tensor([gradient.norm for gradient in self.gradients]).norm())


def replay(model: TranslationModel, record: UpdateRecord, batches: list[Batch], precision: str) -> Replay:
    """Compute the update of these micro-batches, each with the dropout that it had, but change no weight.

    Leaves no gradients behind.
    """
    device = next(model.parameters()).device
    scaler = torch.GradScaler(device.type, init_scale=record.loss_scale, enabled=precision == "fp16")
    model.train()
    model.zero_grad(set_to_none=True)
    with_loss = WithLoss(model)
    with_loss.prior = None if record.prior is None else torch.tensor(record.prior, device=device)
    passes = 1 if record.consistency is None else 2
    micro_batches = []
    for batch, part in zip(batches, record.parts, strict=True):
        seed = dropout_seed(record.seed, record.step, part.index, part.number)
        with _measured_modules(model, batch, passes) as (outputs, backward):
            sums = add_gradient(
                with_loss, batch, seed, precision, record.label_smoothing, record.num_tokens, scaler,
                consistency=record.consistency,
            )  # fmt: skip
        loss, nll = float(sums.loss), float(sums.nll)
        micro_batches.append(MicroBatchReplay(batch, part.origins, loss, nll, outputs, backward))
    scale = scaler.get_scale()
    parameters = list(model.named_parameters())
    weights = [_measure(name, parameter) for name, parameter in parameters]
    gradients = [_measure(name, parameter.grad / scale) for name, parameter in parameters if parameter.grad is not None]
    model.zero_grad(set_to_none=True)
    return Replay(computed_with(model, precision), weights, micro_batches, gradients)


@contextmanager
def _measured_modules(model: nn.Module, batch: Batch, passes: int) -> Iterator[tuple[list[Measured], list[Measured]]]:
    """While inside, the output of every module is measured when it returns, and its gradient when that comes back. The
    modules see the batch so many times over.
    """
    num_rows = len(batch.src)
    if passes > 1:
        batch = Batch.of(*(torch.cat([ids] * passes) for ids in (batch.src, batch.tgt_in, batch.tgt_out)))
    outputs: list[Measured] = []
    backward: list[Measured] = []

    def measure(name: str, module: nn.Module, inputs: tuple, output: object) -> None:
        if not isinstance(output, Tensor):
            return
        found = _measure(name, output, batch)
        outputs.append(replace(found, rows=tuple(sorted({row % num_rows for row in found.rows}))))
        if output.requires_grad:
            output.register_hook(lambda gradient: backward.append(_measure(name, gradient)))

    with hooked(model.named_modules(), measure):
        yield outputs, backward


def _measure(name: str, tensor: Tensor, batch: Batch | None = None) -> Measured:
    x = tensor.detach().float()
    wrong = ~x.isfinite()
    num_wrong = int(wrong.sum())
    return Measured(
        name,
        tuple(tensor.shape),
        float(x.masked_fill(wrong, 0.0).abs().max()) if x.numel() else 0.0,
        float(x.norm()),
        num_wrong,
        _rows_of(name, wrong, batch) if num_wrong and batch is not None and x.dim() == 3 else (),
    )


def _rows_of(name: str, wrong: Tensor, batch: Batch) -> tuple[int, ...]:
    """The rows of the batch in which the output (…, length, size) of a module is wrong."""
    if len(wrong) == len(batch.src):
        return tuple(wrong.flatten(1).any(dim=1).nonzero().flatten().tolist())
    if name.endswith(TABLE):
        return ()  # both stacks may share the table; the embedder, which comes next, knows whose tokens they are
    of_source = name.startswith(SOURCE_STACK) or name.endswith(MEMORY_READERS)
    tokens = Unpadded.of(batch.src if of_source else batch.tgt_in)
    if wrong.shape[:2] != tokens.ids.shape:
        return ()
    places = wrong[0, : tokens.num_tokens].any(dim=1).to(tokens.ids.device)
    return tuple(tokens.sentences()[places].unique().tolist())


# The first that is not finite


def first_not_finite(measured: list[Measured]) -> int | None:
    """The index of the first tensor that is not finite; None where all are."""
    return next((i for i, one in enumerate(measured) if one.num_not_finite), None)


def finding(found: Replay) -> str:
    """A sentence on where the update went wrong."""
    if (place := first_not_finite(found.weights)) is not None:
        return f"The weights are not finite already: {found.weights[place].name} is the first that is not."
    count = len(found.micro_batches)
    for number, done in enumerate(found.micro_batches, start=1):
        within = f", in micro-batch {number} of {count}" if count > 1 else ""
        if (place := first_not_finite(done.outputs)) is not None:
            first = done.outputs[place]
            pairs = _pairs(first.rows, done.origins)
            return f"The first output that is not finite is that of {first.name}{within}{pairs}."
        if not torch.tensor(done.loss).isfinite():
            return f"Every output is finite, and the loss of them is not{within}{_pairs((), done.origins)}."
        if (place := first_not_finite(done.backward)) is not None:
            name = done.backward[place].name
            return (
                "The forward pass is finite; going backwards, the first gradient that is not is that of the output of "
                f"{name}{within}{_pairs((), done.origins)}."
            )
    if (place := first_not_finite(found.gradients)) is not None:
        name = found.gradients[place].name
        return f"The forward pass is finite; the first parameter whose gradient is not is {name}."
    if not torch.tensor(found.grad_norm).isfinite():
        largest = max(found.gradients, key=lambda gradient: gradient.max_abs)
        return f"Every gradient is finite, and their norm is not; the largest is that of {largest.name}."
    return "Computed once more, everything is finite."


def _pairs(rows: tuple[int, ...], origins: list[str]) -> str:
    if not rows:
        return f" (its first pair: {origins[0]})"
    return f", for {len(rows)} of {len(origins)} pairs (the first: {origins[rows[0]]})"
