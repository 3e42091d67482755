"""The loss of two passes over the same targets, with the output projection, a chunk of rows at a time.

As in `chunked_loss.py` the logits of a chunk are made, turned into their gradient in place, and multiplied into the
gradients of hidden states and weight. So the logits of both passes never exist all at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.model.cpu.chunked_loss import CHUNK, OutputGradients, logits_of, mean_logits
from transformer_mt.model.cpu.find_kernels import kernels_for
from transformer_mt.model.unpadded import ROWS


class PairWeights(NamedTuple):
    """The loss of a pair of passes, p and q, is first * CE(p) + second * CE(q) + forward * KL(p || q) + backward *
    KL(q || p). `smoothing` is that of both cross-entropies. The divergence that is reported is forward_share *
    KL(p || q) + backward_share * KL(q || p).
    """

    first: float
    second: float
    forward: float
    backward: float
    smoothing: float
    forward_share: float
    backward_share: float


class PairSums(NamedTuple):
    """Sums over the rows of both passes: nll and normalisers, log(sum of exp(logits)), of each; KL(p || q) and
    KL(q || p).
    """

    nll: tuple[Tensor, Tensor]
    normalisers: tuple[Tensor, Tensor]
    divergences: tuple[Tensor, Tensor]

    def plus(self, other: "PairSums") -> "PairSums":
        """The sums over the rows of both."""
        pairs = ((a[0] + b[0], a[1] + b[1]) for a, b in zip(self, other, strict=True))
        return PairSums(*pairs)

    def loss(self, weights: PairWeights, means: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, nll of the first pass, and divergence. `means` are those of the logits over the vocabulary, summed over
        the rows of each pass.
        """
        e, total = weights.smoothing, torch.zeros_like(self.nll[0])
        shares = zip((weights.first, weights.second), self.nll, self.normalisers, means, strict=True)
        for weight, nll, normalisers, mean in shares:
            if weight:
                total = total + weight * ((1 - e) * nll + e * (normalisers - mean))
        forward, backward = self.divergences
        total = total + weights.forward * forward + weights.backward * backward
        return total, self.nll[0], weights.forward_share * forward + weights.backward_share * backward


def pair_gradients(first: Tensor, second: Tensor, targets: Tensor, weights: PairWeights) -> PairSums:
    """The sums of some rows of logits of both passes (num_rows, vocab_size), with targets (num_rows,).

    The gradients of the loss take the place of the logits, without the smooth part of the targets. With log p and log q
    d = log p - log q apart, the gradient of KL(p || q) is p (d - KL) in the first pass and q - p in the second.
    """
    wide = torch.promote_types(first.dtype, torch.float32)
    x, y = first.to(wide), second.to(wide)
    of_x, of_y = (z.logsumexp(dim=-1, keepdim=True) for z in (x, y))
    at_target = [z.gather(-1, targets[:, None]) for z in (x, y)]
    d = (x - of_x).sub_(y - of_y)
    p, q = (x - of_x).exp_(), (y - of_y).exp_()
    forward, backward = (p * d).sum(dim=-1, keepdim=True), -(q * d).sum(dim=-1, keepdim=True)
    ours = p * (weights.first + weights.backward + weights.forward * (d - forward)) - weights.backward * q
    theirs = q * (weights.second + weights.forward - weights.backward * (d + backward)) - weights.forward * p
    for gradient, weight, logits in ((ours, weights.first, first), (theirs, weights.second, second)):
        surplus = gradient.new_full((len(targets), 1), weight * (weights.smoothing - 1))
        logits.copy_(gradient.scatter_add_(-1, targets[:, None], surplus))
    nll = (of_x - at_target[0]).sum(), (of_y - at_target[1]).sum()
    return PairSums(nll, (of_x.sum(), of_y.sum()), (forward.sum(), backward.sum()))


class ChunkedPairs(torch.autograd.Function):
    """The loss of `PairWeights` over F.linear(hidden, weight, bias), gradients included."""

    @staticmethod
    def forward(
        ctx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: PairWeights,
        dtype: torch.dtype,
        with_gradient: bool,
        prior: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """hidden (2 * num_tokens, d_model), the first pass and then the second; the rest as in `ChunkedCrossEntropy` ->
        loss, nll of the first pass and divergence, sums over the tokens, in float32 or wider.
        """
        num_tokens, height = len(targets), min(CHUNK // 2, len(targets))
        narrow, narrow_weight = hidden.to(dtype), weight.to(dtype)
        narrow_bias = None if bias is None else bias.to(dtype)
        grads = OutputGradients(hidden, weight, bias) if with_gradient else None
        zero = hidden.new_zeros((), dtype=torch.promote_types(dtype, torch.float32))
        sums = PairSums((zero, zero), (zero, zero), (zero, zero))
        kernels = kernels_for(dtype)
        of_logits = pair_gradients if kernels is None else kernels.pair_gradients
        memory = [narrow.new_empty(height + -height % ROWS, len(weight)) for _ in range(2)]
        for start in range(0, num_tokens, max(1, height)):
            end = min(start + height, num_tokens)
            halves = slice(start, end), slice(num_tokens + start, num_tokens + end)
            logits = [
                logits_of(narrow[rows], narrow_weight, narrow_bias, place)
                for rows, place in zip(halves, memory, strict=True)
            ]
            first, second = (half[: end - start] for half in logits)
            chunk = of_logits(first, second, targets[start:end], weights)
            sums = sums.plus(PairSums(*chunk))
            if grads is not None:
                ones = hidden.new_ones(end - start, 1)
                for rows, half in zip(halves, logits, strict=True):
                    grads.add(rows, half, ones, narrow_weight)
        passes = slice(0, num_tokens), slice(num_tokens, 2 * num_tokens)
        first, second = (mean_logits(hidden[rows], weight, bias, prior) for rows in passes)
        loss, nll, divergence = sums.loss(weights, (first, second))
        if grads is not None:
            for rows, share in zip(passes, (weights.first, weights.second), strict=True):
                grads.smooth(rows, share * weights.smoothing, prior)
            ctx.save_for_backward(*grads.finished())
        ctx.mark_non_differentiable(nll, divergence)
        return loss, nll, divergence

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the three sums, of which the first alone is used -> of hidden, weight and bias."""
        hidden, weight, *bias = (saved * grad_outputs[0] for saved in ctx.saved_tensors)
        return hidden, weight, bias[0] if bias else None, None, None, None, None, None
