"""An update computed once more, with a look at everything in it: outputs of modules, gradients on the way back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from transformer_mt.data.batching import Batch
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.unpadded import Unpadded
from transformer_mt.training.micro_batch import add_gradient
from transformer_mt.training.unshared import WithLoss

# Modules whose tokens are the source's.
SOURCE_STACK = "encoder"
MEMORY_READERS = ("cross_attn.k_proj", "cross_attn.v_proj")
TABLE = "embedder.embedding"


@dataclass(frozen=True)
class Measured:
    """What is told of a tensor: the largest magnitude among its finite elements, the norm of all, how many are not
    finite, and in which rows of the batch they are, where it has a row a sentence.
    """

    name: str
    shape: tuple[int, ...]
    max_abs: float
    norm: float
    num_not_finite: int
    rows: tuple[int, ...] = ()


@dataclass
class MicroBatchReplay:
    """`loss` and `nll` are sums. `outputs` are those of modules as they returned; `backward` the gradients with respect
    to the same, in the order in which they came, times the loss scale.
    """

    batch: Batch
    loss: float = 0.0
    nll: float = 0.0
    outputs: list[Measured] = field(default_factory=list)
    backward: list[Measured] = field(default_factory=list)


@dataclass
class Replay:
    """`weights` and `gradients` go by parameter; gradients are of the whole update, before clipping."""

    weights: list[Measured]
    micro_batches: list[MicroBatchReplay]
    gradients: list[Measured]

    @property
    def grad_norm(self) -> float:
        """The norm of all gradients as one vector."""
        return float(torch.tensor([gradient.norm for gradient in self.gradients]).norm())


def replay(
    model: TranslationModel,
    batches: list[Batch],
    seeds: list[int],
    num_tokens: int,
    precision: str,
    label_smoothing: float,
    loss_scale: float,
) -> Replay:
    """The update of these micro-batches, each with the seed of its dropout, up to the step, which is not made.

    Leaves no gradients behind.
    """
    device = next(model.parameters()).device
    scaler = torch.GradScaler(device.type, init_scale=loss_scale, enabled=precision == "fp16")
    model.train()
    model.zero_grad(set_to_none=True)
    with_loss = WithLoss(model)
    micro_batches = []
    for batch, seed in zip(batches, seeds, strict=True):
        done = MicroBatchReplay(batch)
        with _measured_modules(model, done):
            sums = add_gradient(with_loss, batch, seed, precision, label_smoothing, num_tokens, scaler)
        done.loss, done.nll = float(sums.loss), float(sums.nll)
        micro_batches.append(done)
    scale = scaler.get_scale()
    parameters = list(model.named_parameters())
    weights = [_measure(name, parameter) for name, parameter in parameters]
    gradients = [_measure(name, parameter.grad / scale) for name, parameter in parameters if parameter.grad is not None]
    model.zero_grad(set_to_none=True)
    return Replay(weights, micro_batches, gradients)


@contextmanager
def _measured_modules(model: nn.Module, done: MicroBatchReplay) -> Iterator[None]:
    """While inside, every module's output is measured as it returns, and the gradient of it as it comes back."""

    def measured(name: str):
        def hook(module: nn.Module, inputs: tuple, output: object) -> None:
            if not isinstance(output, Tensor):
                return
            done.outputs.append(_measure(name, output, done.batch))
            if output.requires_grad:
                output.register_hook(lambda gradient: done.backward.append(_measure(name, gradient)))

        return hook

    handles = [module.register_forward_hook(measured(name)) for name, module in model.named_modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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
    """The rows of the batch that something is wrong in, of the output of a module (…, length, size)."""
    if len(wrong) == len(batch.src):
        return tuple(wrong.flatten(1).any(dim=1).nonzero().flatten().tolist())
    if name.endswith(TABLE):
        return ()  # which both stacks may share: the embedder, which is next, says whose tokens they are
    of_source = name.startswith(SOURCE_STACK) or name.endswith(MEMORY_READERS)
    tokens = Unpadded.of(batch.src if of_source else batch.tgt_in)
    if wrong.shape[:2] != tokens.ids.shape:
        return ()
    places = wrong[0, : tokens.num_tokens].any(dim=1)
    return tuple(tokens.sentences()[places].unique().tolist())


# What it shows


def first_not_finite(measured: list[Measured]) -> int | None:
    """The place of the first that is not finite all through; None where there is none."""
    return next((i for i, one in enumerate(measured) if one.num_not_finite), None)


def finding(found: Replay, origins: list[list[str]]) -> str:
    """Where it went wrong, as a sentence. `origins` say of each micro-batch where its pairs come from."""
    if (place := first_not_finite(found.weights)) is not None:
        return f"The weights are not finite already: {found.weights[place].name} is the first that is not."
    count = len(found.micro_batches)
    for number, (done, where) in enumerate(zip(found.micro_batches, origins, strict=True), start=1):
        within = f", in micro-batch {number} of {count}" if count > 1 else ""
        if (place := first_not_finite(done.outputs)) is not None:
            first = done.outputs[place]
            return f"The first output that is not finite is that of {first.name}{within}{_pairs(first.rows, where)}."
        if not torch.tensor(done.loss).isfinite():
            return f"Every output is finite, and the loss of them is not{within}{_pairs((), where)}."
        if (place := first_not_finite(done.backward)) is not None:
            name = done.backward[place].name
            return (
                "The forward pass is finite; going backwards, the first gradient that is not is that of the output of "
                f"{name}{within}{_pairs((), where)}."
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
