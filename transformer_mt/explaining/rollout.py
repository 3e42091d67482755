"""Attention rollout: how much of each source token reaches each target position, if attention alone carried it.

Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: a layer passes on half of each position
itself, by the residual connection, and half of what the position attends to, on average over heads; layers multiply.
Their models have one stack. Here a decoder layer passes on by its self-attention first, and then half of itself and
half of the memory, which the encoder's layers have mixed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_mt.inspect.attention import recorded_attention
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.transformer import Transformer


def of_stack(layers: Sequence[Tensor]) -> Tensor:
    """Weights of each layer (num_heads, length, length), from the first on -> (length, length), rows summing to 1."""
    joint = torch.eye(layers[0].size(-1), dtype=layers[0].dtype)
    for weights in layers:
        joint = (joint + weights.mean(dim=0) @ joint) / 2
    return joint


def of_decoder(memory: Tensor, own: Sequence[Tensor], cross: Sequence[Tensor]) -> Tensor:
    """The rollout of the encoder (src_len, src_len), and of each decoder layer the weights on the target so far
    (num_heads, tgt_len, tgt_len) and on the source (num_heads, tgt_len, src_len) -> (tgt_len, src_len). Rows sum to
    less than 1: the rest is the target's.
    """
    seen = torch.zeros(own[0].size(-1), memory.size(-1), dtype=memory.dtype)
    for self_weights, cross_weights in zip(own, cross, strict=True):
        seen = (seen + self_weights.mean(dim=0) @ seen) / 2
        seen = (seen + cross_weights.mean(dim=0) @ memory) / 2
    return seen


@torch.inference_mode()
def rollout(model: TranslationModel, src: Tensor, tgt_in: Tensor) -> Tensor | None:
    """src (1, src_len), tgt_in (1, tgt_len) -> (tgt_len, src_len). None for a recurrent network, whose states carry
    words past its attention.
    """
    if not isinstance(model, Transformer | DecoderOnly):
        return None
    with recorded_attention(model) as recorded:
        model.hidden_states(src, tgt_in)

    def weights(stack: str, num_layers: int, module: str) -> list[Tensor]:
        return [recorded[f"{stack}.layers.{i}.{module}"][0].double().cpu() for i in range(num_layers)]

    own = weights("decoder", len(model.decoder.layers), "self_attn")
    if isinstance(model, DecoderOnly):
        return of_stack(own)[-tgt_in.size(1) :, : src.size(1)]
    memory = of_stack(weights("encoder", len(model.encoder.layers), "self_attn"))
    return of_decoder(memory, own, weights("decoder", len(model.decoder.layers), "cross_attn"))
