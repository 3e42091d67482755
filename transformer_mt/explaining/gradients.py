"""Gradient times input: how much the log-probability of the target would grow with each source token's embedding."""

import torch
from torch import Tensor

from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts.word_dropout import WordFactors


def target_log_prob(
    model: TranslationModel, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, src_factors: Tensor
) -> Tensor:
    """The log-probability of tgt_out (1, tgt_len), where each source embedding is multiplied by its factor
    (1, src_len); one number.
    """
    factors = WordFactors(src_factors, torch.ones_like(tgt_in, dtype=src_factors.dtype))
    logits = model.output(model.hidden_states(src, tgt_in, factors=factors))
    return logits.log_softmax(dim=-1).gather(-1, tgt_out[..., None]).sum()


def gradient_times_input(model: TranslationModel, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
    """Of each source token the product of its embedding with the gradient there (Denil et al. 2014; Ding and Koehn
    2021): (src_len,). This is the derivative by a factor of the embedding, at 1; positions have no factor.
    """
    assert not model.training, "dropout would change the gradients"
    with torch.enable_grad():
        ones = torch.ones_like(src, dtype=model.output.weight.dtype).requires_grad_()
        log_prob = target_log_prob(model, src, tgt_in, tgt_out, ones)
        (gradient,) = torch.autograd.grad(log_prob, ones)
    return gradient[0].detach()
