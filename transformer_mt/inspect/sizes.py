"""How large a model is, counted from its modules: residual connections and parameters, part by part.

A part is named by its modules: `encoder.self_attn` is that of all layers together, `encoder.norm` all norms of the
stack.
"""

from collections.abc import Iterator

from torch import nn

from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import Residual
from transformer_mt.model.stack import Stack


def stacks_of(model: TranslationModel) -> dict[str, Stack]:
    """`encoder` and `decoder`, as far as the model has them, in the order of data."""
    return {name: module for name, module in model.named_children() if isinstance(module, Stack)}


def sublayers_of(layer: nn.Module) -> Iterator[tuple[str, Residual]]:
    """The names of a layer's sublayers in the order of data, each with the residual connection around it."""
    for name, module in layer.named_children():
        if isinstance(module, Residual):
            yield name.removesuffix("_residual"), module


def residual_census(model: TranslationModel) -> dict[str, list[int]]:
    """How many residual connections each layer of each stack has: 2 in an encoder's, 3 in a decoder's (Vaswani et al.
    2017, section 3.1), 2 in a decoder-only model's.
    """
    return {
        name: [sum(isinstance(module, Residual) for module in layer.modules()) for layer in stack.layers]
        for name, stack in stacks_of(model).items()
    }


def parameters_by_part(model: nn.Module) -> tuple[dict[str, int], dict[str, str]]:
    """The parameters of each part, and which part shares another's: it counts where it stands first.

    The first sums to all parameters of the model; a part whose parameters are all another's has 0.
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
    return f"{stack}.{inner[1]}" if inner[0] == "embedder" else stack
