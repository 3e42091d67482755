"""Label-smoothed cross-entropy, as sums over target tokens.

A sum, not a mean: the training loop divides once, by the target tokens of the whole update.
"""

from typing import NamedTuple

from torch import Tensor

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.transformer import Transformer


class LossSums(NamedTuple):
    """`loss` is smoothed and trained on, `nll` unsmoothed and reported; both are sums of natural logarithms."""

    loss: Tensor
    nll: Tensor


def cross_entropy_sums(logits: Tensor, targets: Tensor, label_smoothing: float) -> LossSums:
    """(1 - e) * -log p(target) + e * mean over the vocabulary of -log p (Szegedy et al. 2016, section 7).

    logits (num_tokens, vocab_size), targets (num_tokens,), no padding among them. Equals
    `torch.nn.functional.cross_entropy(..., label_smoothing=e, reduction="sum")`, with the nll from the same pass.
    """
    logits = logits.float()
    normaliser = logits.logsumexp(dim=-1)
    nll = (normaliser - logits.gather(-1, targets[:, None]).squeeze(-1)).sum()
    if label_smoothing == 0:
        return LossSums(nll, nll)
    uniform = (normaliser - logits.mean(dim=-1)).sum()
    return LossSums((1 - label_smoothing) * nll + label_smoothing * uniform, nll)


def batch_loss(model: Transformer, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, label_smoothing: float) -> LossSums:
    """Forward pass and loss of one padded batch (see `data.batching.Batch`).

    Only positions that hold a target token reach the output projection, by far the largest product of a small model.
    """
    real = tgt_out != PAD_ID
    logits = model.output(model.hidden_states(src, tgt_in)[real])
    return cross_entropy_sums(logits, tgt_out[real], label_smoothing)
