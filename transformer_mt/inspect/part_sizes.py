"""The size of a model, counted from its modules: residual connections and parameters, part by part.

A part is named after its modules: `encoder.self_attn` is the self-attention of all layers together, `encoder.norm` all
norms of the stack.
"""

from collections.abc import Iterator

from torch import nn

from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import Residual
from transformer_mt.model.stack import Stack


def stacks_of(model: TranslationModel) -> dict[str, Stack]:
    """The stacks of the model, `encoder` before `decoder`; a decoder-only model has no encoder, an RNN no stack."""
    return {name: module for name, module in model.named_children() if isinstance(module, Stack)}


def sublayers_of(layer: nn.Module) -> Iterator[tuple[str, Residual]]:
    """The names of a layer's sublayers in the order in which they compute, each with its residual connection."""
    for name, module in layer.named_children():
        if isinstance(module, Residual):
            yield name.removesuffix("_residual"), module


def residual_census(model: TranslationModel) -> dict[str, list[int]]:
    """The number of residual connections of each layer, by stack: 2 in an encoder, 3 in a decoder (Vaswani et al. 2017,
    section 3.1), 2 in a decoder-only model.
    """
    return {
        name: [sum(isinstance(module, Residual) for module in layer.modules()) for layer in stack.layers]
        for name, stack in stacks_of(model).items()
    }


def parameters_by_part(model: nn.Module) -> tuple[dict[str, int], dict[str, str]]:
    """The number of parameters of each part, and for a part that shares parameters the part that owns them.

    A shared parameter counts for the part that has it first. So the numbers add up to all parameters of the model, and
    a part that owns none has 0.
    """
    counts: dict[str, int] = {}
    shared: dict[str, str] = {}
    owners: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        part = _part_of(name)
        counts.setdefault(part, 0)
        owner = owners.setdefault(id(parameter), part)
        if owner == part:
            counts[part] += parameter.numel()
        else:
            shared[part] = owner
    return counts, shared


def _part_of(name: str) -> str:
    """`encoder.layers.0.self_attn.q_proj.weight` -> `encoder.self_attn`."""
    stack, *inner = name.split(".")
    if "norm" in inner:
        return f"{stack}.norm"
    if inner[0] == "layers":
        return f"{stack}.{inner[2]}"
    if inner[0] == "embedder":
        return f"{stack}.{inner[1]}"
    return f"{stack}.{inner[0]}" if len(inner) > 1 else stack
