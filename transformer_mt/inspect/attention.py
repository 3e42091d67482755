"""Attention weights of a trained model on one sentence pair."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.interface import TranslationModel


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """While inside, every full (not cached) attention adds its weights under its module name.

    `decoder.layers.0.cross_attn` -> (batch, num_heads, query_len, key_len). The weights are worked out beside the
    fused kernel, from the module's own projections of the same inputs.
    """
    recorded: dict[str, Tensor] = {}

    def record(name: str):
        def hook(module: nn.Module, inputs: tuple) -> None:
            assert isinstance(module, MultiHeadAttention)
            recorded[name] = module.weights(*inputs)

        return hook

    handles = [
        module.register_forward_pre_hook(record(name))
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    ]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


@torch.inference_mode()
def cross_attention(model: TranslationModel, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Where the target looks in the source, in the last layer, averaged over heads.

    src (1, src_len), tgt_in (1, tgt_len) -> (tgt_len, src_len). In a decoder-only model a row is part of a larger
    one, whose rest looks at the target so far, and sums to less than 1.
    """
    with recorded_attention(model) as recorded:
        model.hidden_states(src, tgt_in)
    return looks_at_source(model, recorded, src, tgt_in)


def looks_at_source(model: TranslationModel, recorded: dict[str, Tensor], src: Tensor, tgt_in: Tensor) -> Tensor:
    """`cross_attention` of a pass that `recorded_attention` has seen."""
    (last,) = (name for name, module in model.named_modules() if module is model.source_attention)
    return recorded[last][0].mean(dim=0)[-tgt_in.size(1) :, : src.size(1)]
