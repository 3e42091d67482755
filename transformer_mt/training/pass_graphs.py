"""Forward and backward passes of a training on a GPU as CUDA graphs: one order for two thousand kernels.

A process needs some 60 ms to order the kernels of a base model's step. A step of 4,096 tokens takes an H100 10 ms where
its passes are graphs (`bench_train.py --preset base --device cuda --max-tokens 4096 --warm-up 340`). A graph repeats
the same kernels on the same memory. So a pass reads tensors that stay where they are, and whose sizes are rounded up:
the rows of tokens, which have no padding between them, by an eighth of a power of two or 1,024, and the number of
sentences to a power of two. What is added are rows of padding and sentences of nothing. A capture takes half a second,
so few sizes save more than tight ones. The gradients stay where they are, too.
"""

import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.data.batches.batching import Batch
from transformer_mt.machine.cuda_graphs import CudaGraphs, Step, power_of_two
from transformer_mt.machine.device import autocast
from transformer_mt.model.loss import NO_TARGET, LossSums, output_loss_sums
from transformer_mt.model.parts.word_dropout import word_factors
from transformer_mt.model.transformer import Transformer
from transformer_mt.model.unpadded import ROWS, Unpadded
from transformer_mt.training.sharing.alone import WithLoss

PARTS = 8  # a size of rows is a multiple of so many parts of the next power of two,
FINEST = 1024  # or of so many rows, where that is less, so that of a large batch few rows only fill up
UNCAPTURED = 1  # passes of a size that run as they are: they load the kernels, which a capture does not allow
MOST_GRAPHS = 128
SHARE_OF_MEMORY = 0.5  # beyond it nothing is captured: passes so large keep a GPU busy, and would be in memory twice


def can_be_captured(model: Transformer, precision: str, device: torch.device) -> bool:
    """Whether a pass is the same kernels for every batch of a size. fp16 needs a new scale now and then; experts ask
    for the data's sizes, and layers that are skipped change what is computed.
    """
    if device.type != "cuda" or precision == "fp16" or torch.are_deterministic_algorithms_enabled():
        return False
    with autocast(precision, device):
        return model.goes_unpadded() and model.config.num_experts == 1 and not model.config.layer_drop


class Inputs(NamedTuple):
    """What a pass reads: both sides, the tokens to be told (num_rows,), and what the loss is multiplied with."""

    src: Unpadded
    tgt_in: Unpadded
    targets: Tensor
    share: Tensor

    def tensors(self) -> list[Tensor]:
        """All of them, in one order."""
        sides = [(side.ids, side.at, side.real, side.lengths, side.factors) for side in (self.src, self.tgt_in)]
        return [tensor for tensor in (*sides[0], *sides[1], self.targets, self.share) if tensor is not None]

    def sizes(self) -> tuple[int, ...]:
        """What a graph is made for: rows and longest of each side, and the number of sentences."""
        src, tgt_in = self.src, self.tgt_in
        return src.ids.size(1), tgt_in.ids.size(1), src.longest, tgt_in.longest, len(src.lengths)


class PassGraphs:
    """The passes of a training with one process, captured when their size comes the second time."""

    def __init__(
        self, model: Transformer, with_loss: WithLoss, precision: str, label_smoothing: float, capture: CudaGraphs
    ) -> None:
        """`with_loss` holds the model, and what its loss is computed with."""
        self.model = model
        self.with_loss = with_loss
        self.precision = precision
        self.label_smoothing = label_smoothing
        self.capture = capture
        self.num_captured = 0
        self.has_failed = False
        self._prepares = False
        self._times: dict[tuple[int, ...], int] = {}
        self._passes: dict[tuple[int, ...], tuple[list[Tensor], Step]] = {}
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []

    def add_gradient(self, batch: Batch, seed: int, share: float) -> LossSums:
        """As `micro_batch.add_gradient`, of the loss times `share`. The sums are valid until the next call."""
        torch.manual_seed(seed)
        inputs = self._inputs(batch.to(self.device), share)
        sizes = inputs.sizes()
        self._put_gradients_back()
        self._prepares |= sizes not in self._passes and self._may_capture()
        if sizes not in self._passes and not self._captured(inputs, sizes):
            sums = LossSums(*self._pass(inputs))
            self._times[sizes] = self._times.get(sizes, 0) + 1  # one that ends early has not loaded all kernels
            return sums
        kept, repeat = self._passes[sizes]
        torch._foreach_copy_(kept, inputs.tensors())  # pyright: ignore[reportPrivateImportUsage]
        return LossSums(*repeat())

    def give_up(self) -> bool:
        """Drop all graphs with their memory, for good. Returns whether there were any."""
        self._gradients = []  # those of the parameters are the same, until somebody drops them
        if not self._passes:
            return False
        self._passes.clear()
        self.capture.forget()
        self.has_failed = True
        return True

    def take_prepares(self) -> bool:
        """Whether a pass since the last call was slow for the sake of later ones."""
        prepares, self._prepares = self._prepares, False
        return prepares

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.output.weight.device

    def _captured(self, inputs: Inputs, sizes: tuple[int, ...]) -> bool:
        """Capture the pass of these sizes, if it is time for that."""
        if self._times.get(sizes, 0) < UNCAPTURED or not self._may_capture():
            return False
        if not self._passes:
            self.capture.free_unused()  # of passes that were not captured, whose memory no graph can have
        state = self.capture.random_state()
        try:
            self._passes[sizes] = inputs.tensors(), self.capture(lambda: self._pass(inputs))
        except RuntimeError as error:
            self.has_failed = True
            reason = str(error).strip().partition("\n")[0]
            warnings.warn(f"training without CUDA graphs, which is slower: {reason}", stacklevel=2)
        else:
            self.num_captured += 1
        self.capture.set_random_state(state)
        return not self.has_failed

    def _may_capture(self) -> bool:
        """Whether there is room for one more graph."""
        if self.has_failed or len(self._passes) >= MOST_GRAPHS:
            return False
        return self.capture.has_room_beside(SHARE_OF_MEMORY)

    def _pass(self, inputs: Inputs) -> Tensor:
        """Add the gradient -> loss and nll (2,)."""
        with autocast(self.precision, self.device):
            hidden = self.model.unpadded_hidden_states(inputs.src, inputs.tgt_in)
            sums = output_loss_sums(
                self.model.output, hidden, inputs.targets, self.label_smoothing, self.with_loss.cross_entropy,
                self.with_loss.prior,
            )  # fmt: skip
        parameters, own = zip(*self._gradients, strict=True)
        found = torch.autograd.grad(sums.loss * inputs.share, parameters, allow_unused=True)
        used = [place for place, gradient in enumerate(found) if gradient is not None]
        # All at once: `backward` would add each in a kernel of its own, some 250 in a base model.
        torch._foreach_add_([own[i] for i in used], [found[i] for i in used])  # pyright: ignore[reportPrivateImportUsage]
        return torch.stack((sums.loss.detach(), sums.nll.detach()))

    def _inputs(self, batch: Batch, share: float) -> Inputs:
        factors = word_factors(self.model.config, batch.src, batch.tgt_in)
        of_src, of_tgt = factors or (None, None)
        num_sentences = power_of_two(len(batch.src))
        src, tgt_in = (
            side.filled(_rounded(side.ids.size(1)), num_sentences, power_of_two(side.longest, 16))
            for side in (Unpadded.of(batch.src, batch.src_real, of_src), Unpadded.of(batch.tgt_in, batch.real, of_tgt))
        )
        targets = batch.tgt_out.flatten().index_select(0, batch.real)
        targets = F.pad(targets, (0, tgt_in.ids.size(1) - len(targets)), value=NO_TARGET)
        return Inputs(src, tgt_in, targets, torch.full((), share, device=self.device))

    def _put_gradients_back(self) -> None:
        """Make the gradients those that graphs add to: cleared where somebody dropped them."""
        if not self._gradients:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self._gradients = [(parameter, torch.empty_like(parameter)) for parameter in trained]
        dropped = [own for parameter, own in self._gradients if parameter.grad is None]
        if dropped:
            torch._foreach_zero_(dropped)  # pyright: ignore[reportPrivateImportUsage]
        for parameter, own in self._gradients:
            if parameter.grad is not own:
                if parameter.grad is not None:
                    own.copy_(parameter.grad)
                parameter.grad = own


def _rounded(num_rows: int) -> int:
    """The next size of rows, a multiple of `ROWS`."""
    step = max(ROWS, min(power_of_two(num_rows) // PARTS, FINEST))
    return -(-num_rows // step) * step
