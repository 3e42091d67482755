"""The two halves of a model whose graphs are exported to ONNX: the encoder, and a step of the decoder with its cache as
plain tensors. The layers are the model's own.
"""

from functools import partial

import torch
from torch import Tensor, nn

from transformer_mt.model.layers import DecoderLayer
from transformer_mt.model.parts.layer_context import LayerContext
from transformer_mt.model.transformer import Transformer


class EncoderGraph(nn.Module):
    """src (batch, src_len), padded with PAD -> keys and values of the memory for each decoder layer, each
    (batch, num_kv_heads, src_len, head_dim): k of the first layer, v of the first layer, k of the second, …
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> list[Tensor]:
        memory, _ = self.model.encode(src)
        return [heads for layer in _layers(self.model) for heads in layer.cross_attn.project_key_value(memory)]


class StepGraph(nn.Module):
    """One token for every row. tokens (rows,), src_mask (rows, src_len) True where a source token is no padding,
    `memory` as `EncoderGraph` gives it, and `past`: the keys and values of the tokens before, in the same order, each
    (rows, num_kv_heads, past_len, head_dim) -> logits (rows, tgt_vocab_size), and `past` with one key more each.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, src_mask: Tensor, memory: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """One step; the shapes are those above."""
        decoder, past_len = self.model.decoder, past[0].size(2)
        at, key_at = torch.arange(past_len, past_len + 1)[None], torch.arange(past_len + 1)[None]
        context = decoder.context(None, at, key_at)
        x, present = decoder.embedder(tokens[:, None], at), []
        for i, layer in enumerate(_layers(self.model)):
            k, v, memory_k, memory_v = *past[2 * i : 2 * i + 2], *memory[2 * i : 2 * i + 2]
            cache = _Past(k, v)
            x = layer.self_attn_residual(x, partial(_attend_to_past, layer, context, cache))
            x = layer.cross_attn_residual(x, partial(_attend_to_memory, layer, memory_k, memory_v, src_mask))
            x = layer.feed_forward_residual(x, partial(layer.feed_forward, context=context))
            present += [cache.k, cache.v]
        return self.model.output(decoder.norm(x)[:, 0]), present


class _Past:
    """Keys and values of the tokens so far, (rows, num_kv_heads, length, head_dim)."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        self.k, self.v = k, v


def _attend_to_past(layer: DecoderLayer, context: LayerContext, past: _Past, h: Tensor) -> Tensor:
    """h (rows, 1, d_model) -> the same shape; `past` grows by its key and value."""
    q, k, v = layer.self_attn.project(h, h)
    past.k, past.v = torch.cat((past.k, context.rotate(k)), dim=2), torch.cat((past.v, v), dim=2)
    return layer.self_attn.attend(context.rotate(q), past.k, past.v, context.mask)


def _attend_to_memory(layer: DecoderLayer, k: Tensor, v: Tensor, src_mask: Tensor, h: Tensor) -> Tensor:
    return layer.cross_attn.attend(layer.cross_attn.project_query(h), k, v, src_mask[:, None, None])


def _layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
