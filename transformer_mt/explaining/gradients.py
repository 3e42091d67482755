"""Gradient times input: how much the log-probability of the target would grow with each source token's embedding."""

import torch
from torch import Tensor

from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts.word_dropout import WordFactors


def gradient_times_input(model: TranslationModel, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
    """Of each source token the product of its embedding with the gradient there (Denil et al. 2014; Ding and Koehn
    2021): (src_len,). This is the derivative by a factor of the embedding, at 1; positions have no factor.
    """
    assert not model.training, "dropout would change the gradients"
    # cuDNN goes back through a recurrent network only in training mode, in which there would be dropout.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        ones = torch.ones_like(src, dtype=model.output.weight.dtype).requires_grad_()
        factors = WordFactors(ones, torch.ones_like(tgt_in, dtype=ones.dtype))
        logits = model.output(model.hidden_states(src, tgt_in, factors=factors))
        log_prob = logits.log_softmax(dim=-1).gather(-1, tgt_out[..., None]).sum()
        (gradient,) = torch.autograd.grad(log_prob, ones)
    return gradient[0].detach()
