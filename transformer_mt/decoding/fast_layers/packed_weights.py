"""A model's weights laid out once for decoding: in the order that a CPU's kernels read, in fewer bits where asked.

A product of a decoder's step is small, and reads its whole weight. Everything but the products with weights (norms,
attention's scores, residual sums) stays in fp32, unless a GPU repeats the steps as graphs: see `gpu.step_layers`.
"""

import copy
from functools import partial
from typing import cast

import torch
from torch import nn

from transformer_mt.decoding.fast_layers.gpu.step_layers import step_packing
from transformer_mt.decoding.fast_layers.packed_layers import (
    HalfLinear,
    Int8Linear,
    PackedLinear,
    Packing,
    PairedInt8Linear,
    pairs_work,
)
from transformer_mt.decoding.fast_layers.panels.panel_layers import fits_passes, in_panels
from transformer_mt.machine.device import DTYPES
from transformer_mt.machine.numba_modules import has_numba, needs_numba
from transformer_mt.machine.processor import has_instructions
from transformer_mt.model.gpu.post_norm import is_usual
from transformer_mt.model.gpu.triton_works import triton_works
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import DecoderLayer, PostNormResidual
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.feed_forward import ReluFeedForward
from transformer_mt.model.parts.positions import RotaryPositions

PACKINGS = {
    "fp32": Packing(PackedLinear),
    **{name: Packing(partial(HalfLinear, dtype=dtype)) for name, dtype in DTYPES.items()},
    "int8": Packing(Int8Linear),
    "paired int8": Packing(PairedInt8Linear),
}

MOST_NUMBERS = 2**16  # of a layer's largest weight in fp32; with larger ones torch's products are as fast


def find_packing(precision: str) -> Packing:
    """The packing of `PACKINGS`; of int8 the one for this CPU, and a faster one where numba works."""
    if precision != "int8":
        return PACKINGS[precision]
    return (compiled_int8() or PACKINGS)["paired int8" if sums_in_pairs() else "int8"]


def find_cpu_packing(model: nn.Module, precision: str) -> Packing:
    """The packing of a model on a CPU: with panels, where passes over them are faster than torch's products."""
    packing, rotates = find_packing(precision), _rotates(model)
    if precision == "int8":
        return in_panels(packing, rotates) if not sums_in_pairs() and multiplies_int8() else packing
    outputs = {one.output for one in model.modules() if isinstance(one, TranslationModel)}
    weights = [part.weight for part in model.modules() if isinstance(part, nn.Linear) and part not in outputs]
    is_narrow = all(weight.numel() <= MOST_NUMBERS for weight in weights) and has_numba()
    return in_panels(packing, rotates) if precision == "fp32" and is_narrow else packing


def steps_by_int8_passes(model: nn.Module) -> bool:
    """Whether in int8 a step of each decoder layer is one compiled pass on this CPU. numba is asked last: it loads."""
    models = [module for module in model.modules() if isinstance(module, TranslationModel)]
    layers_of = [[module for module in one.modules() if isinstance(module, DecoderLayer)] for one in models]
    are_known = not _rotates(model) and all(layers and all(map(fits_passes, layers)) for layers in layers_of)
    return are_known and not sums_in_pairs() and multiplies_int8()


def _rotates(model: nn.Module) -> bool:
    return any(isinstance(module, RotaryPositions) for module in model.modules())


def sums_in_pairs() -> bool:
    """Whether torch multiplies int8 slowly on this CPU, which lacks instructions for it, and has another way."""
    there = has_instructions("int8")
    lacks = torch.backends.cpu.get_cpu_capability() == "AVX2" if there is None else not there
    return lacks and pairs_work()


def multiplies_int8() -> bool:
    """Whether numba has the instruction of this CPU that multiplies int8."""
    return compiled_int8() is not None and _has_int8_lanes()


def _has_int8_lanes() -> bool:
    from transformer_mt.decoding.fast_layers.panels.panel_lanes import HAS_INT8

    return HAS_INT8


@needs_numba
def compiled_int8() -> dict[str, Packing]:
    """The packings of int8 whose passes numba compiled."""
    from transformer_mt.decoding.fast_layers.int8_layers import PACKINGS

    return PACKINGS


@torch.no_grad()
def packed(model: TranslationModel, precision: str, for_graphs: bool = False) -> TranslationModel:
    """A model that decodes as this one does, with packed weights of its own. The two share everything else, but for
    copies of norms in panels: a model whose weights have changed is packed anew.

    precision: one of `PACKINGS`; int8 only on a CPU. for_graphs: steps of a search may be repeated as CUDA graphs. The
    twin is for searches, which need no gradient. With numba a search in int8 keeps keys and values of 8 bits, without
    it of 32.
    """
    return cast(TranslationModel, _pack(model, _packing_for(model, precision, for_graphs)).eval())


def _packing_for(model: TranslationModel, precision: str, for_graphs: bool) -> Packing:
    """The packing of a precision. Kernels by Triton are for graphs: ordered one by one they take a process longer than
    torch's.
    """
    models = [module for module in model.modules() if isinstance(module, TranslationModel)]
    become_graphs = for_graphs and all(one.translates and one.goes_in_slots for one in models)
    if become_graphs and triton_works(next(model.parameters()).device):
        return step_packing(None if precision == "fp32" else DTYPES[precision])
    on_cpu = next(model.parameters()).device.type == "cpu"
    return find_cpu_packing(model, precision) if on_cpu else find_packing(precision)


def _pack(module: nn.Module, packing: Packing) -> nn.Module:
    """A copy of the module with packed children. Only their tensors are copied."""
    twin = copy.copy(module)
    twin._compiled_call_impl = None  # made for training, and bound to the weights of the module itself
    twin._modules = {name: child and _packed_child(name, child, packing) for name, child in module._modules.items()}
    return twin


def _packed_child(name: str, child: nn.Module, packing: Packing) -> nn.Module:
    if isinstance(child, MultiHeadAttention):
        return (packing.self_attn if name == "self_attn" else packing.cross_attn)(child, packing)
    if isinstance(child, ReluFeedForward) and packing.relu_feed_forward:
        return packing.relu_feed_forward(child.in_proj, child.out_proj)
    if isinstance(child, PostNormResidual) and packing.post_norm and is_usual(child.norm):
        return packing.post_norm(child)
    if isinstance(child, DecoderLayer) and packing.decoder_layer:
        return packing.decoder_layer(child, cast(DecoderLayer, _pack(child, packing)))
    if isinstance(child, nn.Linear):
        if name == "router":  # of fewer bits it would send tokens to other experts
            return PackedLinear(child.weight, child.bias)
        make = packing.output if name == "output" and packing.output else packing.linear
        return make(child.weight, child.bias)
    return _pack(child, packing)
