"""Two passes over each pair whose predictions should agree: SimCut (Gao et al. 2022) and R-Drop (Wu et al. 2021).

Both passes are one, over a batch of twice the sentences, so each layer is put together and its gradient exchanged once.
The second half draws its own dropout, and under SimCut some of its tokens are cut out. Gradients flow through both.
"""

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.cpu.chunked_pairs import ChunkedPairs, PairSums, PairWeights, pair_gradients
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums, aligned_logits, show_hooks, wants_alignment, with_load_balancing
from transformer_mt.model.parts.attention import product_dtype
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.word_dropout import with_cuts, word_factors

NUMBERS_AT_ONCE = 2**24  # logits that are in float32 at the same time


def pair_weights(consistency: ConsistencyConfig, label_smoothing: float) -> PairWeights:
    """The factors of all that the loss of this kind adds up."""
    pair, alpha = consistency.pair_loss, consistency.weight
    forward, backward = (alpha * share for share in pair.divergence)
    return PairWeights(*pair.cross_entropy, forward, backward, label_smoothing, *pair.shares)


class _PairLoss(torch.autograd.Function):
    """The loss of logits that exist all at once, in chunks of rows: only a chunk of them is in float32. The gradient is
    computed when it is asked for, because fp16 needs the scale of the loss in it before it is rounded.
    """

    @staticmethod
    def forward(
        ctx, logits: Tensor, targets: Tensor, weights: PairWeights, num_classes: int, prior: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """logits (2 * num_tokens, num_classes or more) of the first pass and then the second, targets (num_tokens,) ->
        loss, nll of the first pass and divergence, in float32.
        """
        ctx.save_for_backward(logits, targets)
        ctx.weights, ctx.num_classes, ctx.prior = weights, num_classes, prior
        zero = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
        sums, means = PairSums((zero, zero), (zero, zero), (zero, zero)), [zero, zero]
        for rows, first, second in _chunks(logits, len(targets), num_classes):
            for i, half in enumerate((first, second)):
                # Not a product of matrices, which autocast would round.
                mean = half.mean(dim=-1) if prior is None else (half * prior.to(half.dtype)).sum(dim=-1)
                means[i] = means[i] + mean.sum()
            sums = sums.plus(pair_gradients(first, second, targets[rows], weights))
        loss, nll, divergence = sums.loss(weights, (means[0], means[1]))
        ctx.mark_non_differentiable(nll, divergence)
        return loss, nll, divergence

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Gradients of the three sums, of which the first alone is used -> of the logits, in their shape and type."""
        logits, targets = ctx.saved_tensors
        weights, num_classes = ctx.weights, ctx.num_classes
        gradient = torch.zeros_like(logits)
        for rows, first, second in _chunks(logits, len(targets), num_classes):
            pair_gradients(first, second, targets[rows], weights)
            shift = 0
            for half, share in ((first, weights.first), (second, weights.second)):
                half -= share * weights.smoothing * (1 / num_classes if ctx.prior is None else ctx.prior)
                places = slice(rows.start + shift, rows.stop + shift)
                gradient[places, :num_classes] = (half * grad_outputs[0]).to(logits.dtype)
                shift = len(targets)
        return gradient, None, None, None, None


def _chunks(logits: Tensor, num_tokens: int, num_classes: int):
    """Rows of the targets, and their logits in both passes: copies, in float32 or wider."""
    wide, height = torch.promote_types(logits.dtype, torch.float32), max(1, NUMBERS_AT_ONCE // num_classes)
    for start in range(0, num_tokens, height):
        rows = slice(start, min(start + height, num_tokens))
        halves = (part[rows, :num_classes] for part in logits.split(num_tokens))
        yield rows, *(half.to(wide, copy=True) for half in halves)


def output_pair_sums(
    output: nn.Linear, hidden: Tensor, targets: Tensor, weights: PairWeights, prior: Tensor | None = None
) -> LossSums:
    """The loss of `PairWeights` over the logits `output(hidden)`; hidden (2 * num_tokens, d_model), the first pass and
    then the second, targets (num_tokens,). The `nll` is that of the first pass.

    On a CPU the logits are made and used up in chunks, as in `output_loss_sums`.
    """
    dtype = product_dtype(hidden)
    if hidden.device.type != "cpu" or dtype == torch.float16:
        aligned = wants_alignment(output, hidden.device, dtype)
        logits = aligned_logits(output, hidden) if aligned else output(hidden)
        loss, nll, divergence = _PairLoss.apply(logits, targets, weights, output.out_features, prior)
    else:
        needed = show_hooks(output, hidden)
        weight, bias = output.weight, output.bias
        sums = ChunkedPairs.apply(hidden, weight, bias, targets, weights, dtype, needed, prior)
        loss, nll, divergence = sums
    return LossSums(loss, nll, divergence=divergence)


def consistent_batch_loss(
    model: TranslationModel,
    src: Tensor,
    tgt_in: Tensor,
    tgt_out: Tensor,
    label_smoothing: float,
    consistency: ConsistencyConfig,
    real: Tensor | None = None,
    prior: Tensor | None = None,
    src_real: Tensor | None = None,
) -> LossSums:
    """`batch_loss` of two passes, with the divergence between their predictions at real target positions.

    The load of experts is balanced over both passes together.
    """
    if real is None:
        real = (tgt_out.flatten() != PAD_ID).nonzero().flatten()
    routing = Routing() if model.training else None
    targets = tgt_out.flatten().index_select(0, real)
    if src_real is not None:
        src_real = torch.cat((src_real, src_real + src.size(0) * src.size(1)))
    src, tgt_in = torch.cat((src, src)), torch.cat((tgt_in, tgt_in))
    factors = word_factors(model.config, src, tgt_in) if model.training else None
    factors = with_cuts(factors, src, tgt_in, consistency.cut_probability)
    hidden = model.real_hidden_states(
        src, tgt_in, torch.cat((real, real + tgt_out.numel())), routing, factors, src_real
    )
    sums = output_pair_sums(model.output, hidden, targets, pair_weights(consistency, label_smoothing), prior)
    return with_load_balancing(sums, routing, model.config, len(real))
