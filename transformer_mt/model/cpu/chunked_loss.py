"""Output projection and cross-entropy as one operation in training on a CPU, a chunk of rows at a time.

The logits of a chunk are made, turned into their gradient in place, and multiplied into the gradients of hidden states
and weight. Then comes the next chunk. So the logits of a batch, some hundred megabytes, never exist all at once, and a
chunk stays in the caches.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.model.cpu.find_kernels import kernels_for
from transformer_mt.model.unpadded import ROWS

CHUNK = 1024  # rows: products of this height run at full speed, and some chunks' worth of logits stay in the cache


class ChunkedCrossEntropy(torch.autograd.Function):
    """`cross_entropy_sums(F.linear(hidden, weight, bias), targets, label_smoothing)`, gradients included.

    With z = exp(logits - max) and s = sum of z, a row's nll is log(s) + max - logits[target]. Its gradient is z / s
    less the one-hot target. The gradient is kept times s, and s is divided out later, where rows are short. The smooth
    part of a target needs no logits: their mean over the vocabulary is hidden @ mean(weight) + mean(bias), uniform or
    weighted by a prior.
    """

    @staticmethod
    def forward(
        ctx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
        with_gradient: bool,
        prior: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """hidden (num_tokens, d_model), weight (vocab_size, d_model), bias (vocab_size,), targets (num_tokens,), prior
        (vocab_size,) -> loss and nll, sums over the tokens, in float32 or wider.

        Products are computed in `dtype`. Gradients are made here, where the logits are, if `with_gradient`.
        """
        wide = torch.promote_types(dtype, torch.float32)
        narrow, narrow_weight = hidden.to(dtype), weight.to(dtype)
        narrow_bias = None if bias is None else bias.to(dtype)
        grads = OutputGradients(hidden, weight, bias) if with_gradient else None
        nll = normalisers = hidden.new_zeros((), dtype=wide)
        kernels = kernels_for(dtype)
        of_logits = exponentials if kernels is None else kernels.exponentials
        height = min(CHUNK, len(hidden))
        # For all chunks, so that its pages are fetched once.
        memory = narrow.new_empty(height + -height % ROWS, len(weight))
        for start in range(0, len(hidden), CHUNK):
            rows = slice(start, start + CHUNK)
            num_rows = len(narrow[rows])
            logits = logits_of(narrow[rows], narrow_weight, narrow_bias, memory)
            s, chunk_nll, chunk_normalisers = of_logits(logits[:num_rows], targets[rows], label_smoothing)
            nll, normalisers = nll + chunk_nll, normalisers + chunk_normalisers
            if grads is not None:
                grads.add(rows, logits, s, narrow_weight)
        loss = nll.clone()
        if label_smoothing > 0:
            means = mean_logits(hidden, weight, bias, prior)
            loss = (1 - label_smoothing) * nll + label_smoothing * (normalisers - means)
        if grads is not None:
            grads.smooth(slice(None), label_smoothing, prior)
            ctx.save_for_backward(*grads.finished())
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of loss and nll, the second unused -> of hidden, weight and bias, in their shapes and types."""
        hidden, weight, *bias = (saved * grad_outputs[0] for saved in ctx.saved_tensors)
        return hidden, weight, bias[0] if bias else None, None, None, None, None, None


def logits_of(rows: Tensor, weight: Tensor, bias: Tensor | None, memory: Tensor) -> Tensor:
    """The logits of some rows of hidden states, then rows of 0 (see `_filled_up`), in the first rows of `memory`."""
    inputs = _filled_up(rows)
    logits = memory[: len(inputs)]
    if bias is None:
        torch.mm(inputs, weight.t(), out=logits)
    else:
        torch.addmm(bias, inputs, weight.t(), out=logits)
    logits[len(rows) :] = 0
    return logits


def _filled_up(rows: Tensor) -> Tensor:
    """The rows and then zeros, so that products come in few shapes: see `unpadded.py`."""
    surplus = -len(rows) % ROWS
    return F.pad(rows, (0, 0, 0, surplus)) if surplus else rows


def exponentials(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The exponentials of some rows of logits (num_rows, vocab_size), with targets (num_rows,), as the loss needs them.

    The gradient times s takes the place of the logits. Returns s (num_rows, 1), and the sums over the rows of the nll
    and of the normalisers, log(s) + max, in float32 or wider.
    """
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    target = targets[:, None]
    largest = z.amax(dim=-1, keepdim=True)
    z -= largest
    at_target = z.gather(-1, target)
    s = z.exp_().sum(dim=-1, keepdim=True)
    normaliser = s.log()
    z.scatter_add_(-1, target, s * (label_smoothing - 1))
    logits.copy_(z)
    return s, (normaliser - at_target).sum(), (normaliser + largest).sum()


class OutputGradients:
    """Gradients of the loss with respect to hidden states, weight and bias, as chunks come in. Sums are float32."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.inputs = hidden, weight, bias
        self.hidden = torch.empty_like(hidden)
        self.weight = torch.zeros_like(weight)
        self.bias = None if bias is None else torch.zeros_like(bias)

    def add(self, rows: slice, logits: Tensor, s: Tensor, weight: Tensor) -> None:
        """`logits` holds the gradient with respect to a chunk's logits, times s (rows, 1), and zeros behind it."""
        self.hidden[rows] = torch.mm(logits, weight)[: len(s)] / s
        inputs = _filled_up((self.inputs[0][rows] / s).to(logits.dtype))
        if logits.dtype == self.weight.dtype:
            self.weight.addmm_(logits.t(), inputs)
        else:
            self.weight += torch.mm(logits.t(), inputs)
        if self.bias is not None:
            self.bias += (logits[: len(s)] / s).sum(dim=0)

    def smooth(self, rows: slice, label_smoothing: float, prior: Tensor | None) -> None:
        """Add the smooth part of the targets of some rows, the same for every row; a uniform one is for every word."""
        hidden, weight, _ = self.inputs
        hidden = hidden[rows]
        if label_smoothing == 0:
            return
        if prior is not None:
            prior = prior.to(weight.dtype)
            with torch.autocast(weight.device.type, enabled=False):
                self.hidden[rows] -= (prior @ weight).to(hidden.dtype) * label_smoothing
            self.weight.addr_(prior, hidden.sum(dim=0).to(weight.dtype), alpha=-label_smoothing)
            if self.bias is not None:
                self.bias.sub_(prior * (len(hidden) * label_smoothing))
            return
        share = label_smoothing / len(weight)
        self.hidden[rows].sub_(weight.sum(dim=0) * share)
        self.weight.sub_(hidden.sum(dim=0) * share)
        if self.bias is not None:
            self.bias.sub_(len(hidden) * share)

    def finished(self) -> list[Tensor]:
        """The gradients of hidden states, weight and, where there is one, bias."""
        return [self.hidden, self.weight] if self.bias is None else [self.hidden, self.weight, self.bias]


def mean_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, prior: Tensor | None) -> Tensor:
    """The mean of the logits over the vocabulary, uniform or weighted by a prior, summed over rows."""
    with torch.autocast(weight.device.type, enabled=False):  # a product in bf16 has 8 bits of the sum
        if prior is not None:
            prior = prior.to(weight.dtype)
            mean = hidden.sum(dim=0).to(weight.dtype) @ (prior @ weight)
            return mean if bias is None else mean + len(hidden) * (prior @ bias)
        mean = hidden.sum(dim=0).to(weight.dtype) @ weight.mean(dim=0)
        return mean if bias is None else mean + len(hidden) * bias.mean()
