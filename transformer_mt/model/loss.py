"""Label-smoothed cross-entropy, as sums over target tokens.

It is a sum and no mean: the training loop divides once, by the target tokens of the whole update.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.cpu.chunked_loss import ChunkedCrossEntropy
from transformer_mt.model.gpu.output_loss import OutputCrossEntropy, takes_output
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts.attention import product_dtype
from transformer_mt.model.parts.experts import mean_load_balancing
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.word_dropout import word_factors

NO_TARGET = -1  # of a row that fills up a size
# A GPU's fast products want rows of 16 bytes or a multiple; that is eight numbers of 16 bits.
ALIGNED = 8


class LossSums(NamedTuple):
    """`loss` is smoothed and trained on, `nll` is unsmoothed and reported. Both are sums of natural logarithms.

    `load_balancing`, where experts are trained, is their loss times the number of tokens. `loss` holds it times its
    weight. `divergence`, where two passes are compared, is how far they are apart (see `consistency.py`).
    """

    loss: Tensor
    nll: Tensor
    load_balancing: Tensor | None = None
    divergence: Tensor | None = None


CrossEntropy = Callable[..., LossSums]  # called as `cross_entropy_sums` is


class _CrossEntropySums(torch.autograd.Function):
    """The formula and its gradient in closed form: softmax - (1 - e) * one-hot - e / V, or e * prior in its place.

    Left to autograd, the same costs eight passes over (num_tokens, vocab_size) and as many buffers of that size.
    """

    @staticmethod
    def forward(
        ctx, logits: Tensor, targets: Tensor, label_smoothing: float, num_classes: int | None, prior: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """logits (num_tokens, vocab_size or more), targets (num_tokens,), prior (vocab_size,) -> loss and nll, sums
        over the tokens, in float32.
        """
        scores = logits[:, :num_classes].float()
        counts = (targets != NO_TARGET).to(scores.dtype)
        normaliser = scores.logsumexp(dim=-1, keepdim=True)
        nll = ((normaliser - scores.gather(-1, targets.clamp(min=0)[:, None])).squeeze(-1) * counts).sum()
        loss = nll
        if label_smoothing > 0:
            means = scores.mean(dim=-1) if prior is None else scores @ prior
            smooth = ((normaliser.squeeze(-1) - means) * counts).sum()
            loss = (1 - label_smoothing) * nll + label_smoothing * smooth
        ctx.save_for_backward(logits, normaliser, targets)
        ctx.prior = prior
        ctx.label_smoothing, ctx.num_classes = label_smoothing, num_classes
        nll = nll.clone()  # without smoothing, loss and nll would be one tensor
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Gradients of loss and nll, the second unused -> of the logits, in their shape and type."""
        logits, normaliser, targets = ctx.saved_tensors
        smoothing = ctx.label_smoothing
        width = logits.size(-1)
        num_classes = width if ctx.num_classes is None else ctx.num_classes
        columns = torch.arange(width, device=targets.device)
        gradient = (logits.float() - normaliser).exp_()
        if smoothing > 0:
            gradient.sub_(smoothing / num_classes if ctx.prior is None else smoothing * _widened(ctx.prior, width))
        # A scatter would make a compiler write all of the gradient in float32 first.
        gradient = torch.where(targets[:, None] == columns, gradient + (smoothing - 1), gradient)
        if ctx.num_classes is not None:
            gradient = torch.where(columns < num_classes, gradient, 0)
        counts = (targets != NO_TARGET).to(gradient.dtype)[:, None]
        return gradient.mul_(grad_outputs[0] * counts).to(logits.dtype), None, None, None, None


def _widened(prior: Tensor, width: int) -> Tensor:
    """The prior with 0 for the columns that do not belong to the vocabulary."""
    return F.pad(prior, (0, width - len(prior)))


def cross_entropy_sums(
    logits: Tensor, targets: Tensor, label_smoothing: float, num_classes: int | None = None, prior: Tensor | None = None
) -> LossSums:
    """(1 - e) * -log p(target) + e * mean over the vocabulary of -log p (Szegedy et al. 2016, section 7). The mean is
    uniform, or weighted by `prior` (vocab_size,), whose sum is 1.

    logits (num_tokens, vocab_size), targets (num_tokens,); those that are `NO_TARGET` count nothing. Equals
    `torch.nn.functional.cross_entropy(..., label_smoothing=e, reduction="sum")`, with the nll from the same pass; no
    gradient flows through the nll. Columns from `num_classes` on do not belong to the vocabulary, and get no gradient.
    """
    return LossSums(*_CrossEntropySums.apply(logits, targets, label_smoothing, num_classes, prior))


def wants_alignment(output: nn.Module, device: torch.device, dtype: torch.dtype) -> TypeGuard[nn.Linear]:
    """Whether the size of the vocabulary makes products of this type slower there, and no hook looks at the module."""
    if device.type != "cuda" or dtype.itemsize != 2 or not isinstance(output, nn.Linear):
        return False
    return output.out_features % ALIGNED != 0 and not output._forward_hooks


def aligned_logits(output: nn.Linear, hidden: Tensor) -> Tensor:
    """`output(hidden)`, followed by columns of 0 that make its width a multiple of `ALIGNED`."""
    surplus = -output.out_features % ALIGNED
    # Rounded before it is padded: half of the bytes are copied.
    weight = F.pad(output.weight.to(product_dtype(hidden)), (0, 0, 0, surplus))
    return F.linear(hidden, weight, None if output.bias is None else F.pad(output.bias, (0, surplus)))


def output_loss_sums(
    output: nn.Module,
    hidden: Tensor,
    targets: Tensor,
    label_smoothing: float,
    cross_entropy: CrossEntropy = cross_entropy_sums,
    prior: Tensor | None = None,
) -> LossSums:
    """`cross_entropy_sums` of the logits `output(hidden)`; hidden (num_tokens, d_model), targets (num_tokens,).

    On a CPU the logits are made and used up in chunks, and so they are where `takes_output`, in large ones, whatever
    the caller's `cross_entropy`. They are made all at once on other devices; on a CPU where the caller has its own
    `cross_entropy`, a compiled one; where `output` is packed for decoding; and under fp16, whose gradients need the
    scaler's factor before they are rounded.
    """
    dtype = product_dtype(hidden)
    if takes_output(output, hidden.device, dtype):
        weight, bias, with_gradient = output.weight, output.bias, torch.is_grad_enabled()
        sums = OutputCrossEntropy.apply(hidden, weight, bias, targets, label_smoothing, dtype, with_gradient, prior)
        return LossSums(*sums)
    plain = isinstance(output, nn.Linear) and cross_entropy is cross_entropy_sums
    if hidden.device.type != "cpu" or dtype == torch.float16 or not plain:
        if wants_alignment(output, hidden.device, dtype):
            logits, num_classes = aligned_logits(output, hidden), output.out_features
        else:
            logits, num_classes = output(hidden), None
        return cross_entropy(logits, targets, label_smoothing, num_classes, prior)
    with_gradient = show_hooks(output, hidden)
    weight, bias = output.weight, output.bias
    sums = ChunkedCrossEntropy.apply(hidden, weight, bias, targets, label_smoothing, dtype, with_gradient, prior)
    return LossSums(*sums)


def show_hooks(output: nn.Module, hidden: Tensor) -> bool:
    """Show hooks on the output projection the logits, which change nothing about the sums of a loss in chunks. Returns
    whether that loss needs gradients.
    """
    if output._forward_hooks:
        with torch.no_grad():
            output(hidden)
    return torch.is_grad_enabled() and (hidden.requires_grad or any(p.requires_grad for p in output.parameters()))


def batch_loss(
    model: TranslationModel,
    src: Tensor,
    tgt_in: Tensor,
    tgt_out: Tensor,
    label_smoothing: float,
    real: Tensor | None = None,
    cross_entropy: CrossEntropy = cross_entropy_sums,
    prior: Tensor | None = None,
    src_real: Tensor | None = None,
) -> LossSums:
    """Forward pass and loss of one padded batch (see `data.batches.batching.Batch`).

    Only positions that hold a target token reach the output projection, by far the largest product of a small model.
    `real` (num_tokens,) are their places in tgt_out.flatten(), `src_real` those of the source's, where the caller has
    them; to count them on a GPU means to wait for it. `cross_entropy` computes the loss, compiled or not. `prior`: see
    `cross_entropy_sums`.
    """
    if real is None:
        real = (tgt_out.flatten() != PAD_ID).nonzero().flatten()
    routing = Routing() if model.training else None
    factors = word_factors(model.config, src, tgt_in) if model.training else None
    hidden = model.real_hidden_states(src, tgt_in, real, routing, factors, src_real)
    targets = tgt_out.flatten().index_select(0, real)
    sums = output_loss_sums(model.output, hidden, targets, label_smoothing, cross_entropy, prior)
    return with_load_balancing(sums, routing, model.config, len(real))


def with_load_balancing(sums: LossSums, routing: Routing | None, config: ModelConfig, num_tokens: int) -> LossSums:
    """The sums with the load-balancing loss that a pass over so many target tokens collected, if it did."""
    if routing is None or not routing.losses:
        return sums
    # Times the tokens, so that dividing by those of the whole update gives the mean over micro-batches.
    load_balancing = mean_load_balancing(routing) * num_tokens
    loss = sums.loss + config.load_balancing_weight * load_balancing
    return sums._replace(loss=loss, load_balancing=load_balancing.detach())
