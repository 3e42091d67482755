"""Attention weights of a trained model on one sentence pair."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transformer_mt.model.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.transformer import Transformer


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """While inside, every full (not cached) attention adds its weights under its module name.

    `decoder.layers.0.cross_attn` -> (batch, num_heads, query_len, key_len). The weights are worked out beside the
    fused kernel, from the module's own projections of the same inputs.
    """
    recorded: dict[str, Tensor] = {}

    def record(name: str):
        def hook(module: nn.Module, inputs: tuple[Tensor, Tensor, Tensor | None]) -> None:
            assert isinstance(module, MultiHeadAttention)
            query, key_value, mask = inputs
            q, (k, _) = module.project_query(query), module.project_key_value(key_value)
            recorded[name] = attention_weights(q, k, mask)

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
def cross_attention(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Of the last decoder layer, averaged over heads. src (1, src_len), tgt_in (1, tgt_len) -> (tgt_len, src_len)."""
    with recorded_attention(model) as recorded:
        model.hidden_states(src, tgt_in)
    last = f"decoder.layers.{len(model.decoder.layers) - 1}.cross_attn"
    return recorded[last][0].mean(dim=0)
