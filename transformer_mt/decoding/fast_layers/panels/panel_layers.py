"""Layers with weights in panels, for passes that cost less than torch's calls do: these are most of what a step of a
narrow model takes. A search that does not take compiled passes takes the packed layers that these hold.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.packed_layers import Packing
from transformer_mt.decoding.fast_layers.panels.in_panels import InPanels
from transformer_mt.decoding.fast_layers.panels.layout import Map
from transformer_mt.model.cache import LANES, LayerCache
from transformer_mt.model.layers import DecoderLayer, PostNormResidual, PreNormResidual
from transformer_mt.model.parts.attention import MultiHeadAttention, unrotated
from transformer_mt.model.parts.feed_forward import ReluFeedForward
from transformer_mt.model.parts.layer_context import LayerContext


class PanelLinear(nn.Module):
    """A linear map by one pass. In int8 its integers, and their sums, are those of the packed map."""

    def __init__(self, packed: Map) -> None:
        super().__init__()
        self.packed = packed
        self.in_panels = InPanels([packed], [])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        if (passes := self.in_panels.passes_for(x)) is None:
            return self.packed(x)
        out = x.new_empty(*x.shape[:-1], self.packed.weight.size(1))
        num_rows, place = x.numel() // x.size(-1), self.in_panels.panels.places[0]
        passes.linear_pass(x.reshape(-1).numpy(), num_rows, place, *self.in_panels.weights, out.view(-1).numpy())
        return out


class PanelDecoderLayer(DecoderLayer):
    """A decoder layer whose step is one pass."""

    def __init__(self, packed: DecoderLayer) -> None:
        """Of a layer with packed parts, to which `fits_passes` has said yes."""
        nn.Module.__init__(self)
        self._modules = packed._modules
        residuals = [self.self_attn_residual, self.cross_attn_residual, self.feed_forward_residual]
        norms = [cast(nn.LayerNorm, residual.norm) for residual in residuals]
        self.in_panels = InPanels(self._maps(), norms)
        self._factors = np.array([norms[0].eps, self.self_attn.scale], np.float32)
        self._is_pre_norm = isinstance(self.self_attn_residual, PreNormResidual)

    def _maps(self) -> list[Map]:
        """In the order of `layer_parts.py`."""
        own, cross, feed_forward = self.self_attn, self.cross_attn, self.feed_forward
        maps = own.joint_proj, own.out_proj, cross.q_proj, cross.out_proj, feed_forward.in_proj, feed_forward.out_proj
        return [cast(Map, one) for one in maps]

    def step(self, x: Tensor, cache: LayerCache, slot: int, context: LayerContext, memory_bias: Tensor) -> Tensor:
        """See `DecoderLayer.step`."""
        passes = self.in_panels.passes_for(x)
        if passes is None:
            return super().step(x, cache, slot, context, memory_bias)
        assert context.rotate is unrotated
        assert isinstance(context.mask, Tensor)
        assert cache.memory_k is not None
        assert cache.memory_v is not None
        attention, (num_sentences, num_rows, _) = self.self_attn, x.shape
        own = self._arrays(*cache.reserve(slot + num_rows, cache.memory_k))
        memory = self._arrays(cache.memory_k, cache.memory_v)
        shape = num_sentences, attention.num_heads, num_rows, -1
        masks = context.mask.expand(shape).numpy(), memory_bias.expand(shape).numpy()
        heads = attention.num_heads, attention.num_kv_heads
        sizes = np.array([num_sentences, num_rows, *heads, slot, self._is_pre_norm], np.int64)
        panels = self.in_panels.panels
        tables = panels.places, panels.norms, sizes, self._factors
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        rows = x.reshape(-1).numpy(), out.view(-1).numpy()
        passes.layer_pass(*rows, *self.in_panels.weights, *tables, *own, masks[0], *memory, masks[1])
        return out

    def _arrays(self, k: Tensor, v: Tensor) -> list[Any]:
        """Slots as a pass reads them: flat, or of 8 bits, where the same memory is given as steps too."""
        if self.in_panels.in_int8:
            return [k.numpy(), k.view(torch.float32).numpy(), v.numpy(), v.view(torch.float32).numpy()]
        return [k.view(-1).numpy(), v.view(-1).numpy()]


def in_panels(packing: Packing, rotates: bool) -> Packing:
    """The packing with panels beside its own weights where a step has products, and the passes know what a layer does.
    `rotates`: positions turn queries and keys, which the passes do not know.
    """

    def output(weight: Tensor, bias: Tensor | None) -> nn.Module:
        packed = packing.linear(weight, bias)
        return packed if weight.size(1) % LANES else PanelLinear(cast(Map, packed))

    def decoder_layer(layer: DecoderLayer, packed: DecoderLayer) -> DecoderLayer:
        return PanelDecoderLayer(packed) if not rotates and fits_passes(layer) else packed

    return replace(packing, output=output, decoder_layer=decoder_layer)


def fits_passes(layer: DecoderLayer) -> bool:
    """Whether the passes know all parts of a layer that is not packed yet, and its vectors are whole."""
    residuals = layer.self_attn_residual, layer.cross_attn_residual, layer.feed_forward_residual
    is_usual = {type(residual) for residual in residuals} in ({PreNormResidual}, {PostNormResidual})
    is_usual = is_usual and all(type(residual.norm) is nn.LayerNorm for residual in residuals)
    is_usual = is_usual and all(type(one) is MultiHeadAttention for one in (layer.self_attn, layer.cross_attn))
    feed_forward = layer.feed_forward
    if not is_usual or type(feed_forward) is not ReluFeedForward:
        return False
    return layer.self_attn.head_dim % LANES == 0 and feed_forward.in_proj.out_features % LANES == 0
