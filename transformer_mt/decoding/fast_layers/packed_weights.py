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
from transformer_mt.machine.device import DTYPES
from transformer_mt.machine.numba_modules import needs_numba
from transformer_mt.machine.processor import has_instructions
from transformer_mt.model.gpu.post_norm import is_usual
from transformer_mt.model.gpu.triton_works import triton_works
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import PostNormResidual
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.feed_forward import ReluFeedForward

PACKINGS = {
    "fp32": Packing(PackedLinear),
    **{name: Packing(partial(HalfLinear, dtype=dtype)) for name, dtype in DTYPES.items()},
    "int8": Packing(Int8Linear),
    "paired int8": Packing(PairedInt8Linear),
}


def find_packing(precision: str) -> Packing:
    """The packing of `PACKINGS`; of int8 the one for this CPU, and a faster one where numba works."""
    if precision != "int8":
        return PACKINGS[precision]
    return (compiled_int8() or PACKINGS)["paired int8" if sums_in_pairs() else "int8"]


def sums_in_pairs() -> bool:
    """Whether torch multiplies int8 slowly on this CPU, which lacks instructions for it, and has another way."""
    there = has_instructions("int8")
    lacks = torch.backends.cpu.get_cpu_capability() == "AVX2" if there is None else not there
    return lacks and pairs_work()


@needs_numba
def compiled_int8() -> dict[str, Packing]:
    """The packings of int8 whose passes numba compiled."""
    from transformer_mt.decoding.fast_layers.int8_layers import PACKINGS

    return PACKINGS


@torch.no_grad()
def packed(model: TranslationModel, precision: str, for_graphs: bool = False) -> TranslationModel:
    """A model that decodes as this one does, with packed weights of its own. The two share everything else.

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
    return find_packing(precision)


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
    if isinstance(child, nn.Linear):
        if name == "router":  # of fewer bits it would send tokens to other experts
            return PackedLinear(child.weight, child.bias)
        make = packing.output if name == "output" and packing.output else packing.linear
        return make(child.weight, child.bias)
    return _pack(child, packing)
