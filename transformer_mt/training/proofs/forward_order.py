"""The order in which a forward pass goes through the modules, and those that it gives nothing to do."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

from transformer_mt.inspect.hooks import hooked
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.experts import MixtureOfExperts


@dataclass
class ForwardOrder:
    """`returned`: by the name of a module, when it returned first. `idle`: modules that were given an empty tensor.
    `experts`: those of mixtures that were given tokens, with what they made of them.
    """

    returned: dict[str, int] = field(default_factory=dict)
    idle: list[nn.Module] = field(default_factory=list)
    experts: list[tuple[nn.Module, Tensor]] = field(default_factory=list)

    def of(self, parameter: str) -> float:
        """When the module of this parameter returned, or if its weights are read from outside, the one around it."""
        module = parameter
        while module := module.rpartition(".")[0]:
            if module in self.returned:
                return self.returned[module]
        return math.inf  # read by the loss


@contextmanager
def forward_order(model: nn.Module) -> Iterator[ForwardOrder]:
    """While inside, the model's passes are watched."""
    order = ForwardOrder()
    mixtures = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
    experts = {expert for mixture in mixtures for expert in mixture.experts}

    def watch(name: str, module: nn.Module, inputs: tuple, output: object) -> None:
        order.returned.setdefault(name, len(order.returned))
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].numel() == 0:
            order.idle.append(module)
        elif module in experts and isinstance(output, Tensor) and output.requires_grad:
            order.experts.append((module, output))

    # Whoever looks for hooks at the output projection, or at those of an attention, goes another way than in training
    # (see `model.loss` and `MultiHeadAttention`).
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    apart = {projection for attention in attentions for projection in attention.projections}
    modules = [(name, module) for name, module in model.named_modules() if name not in ("", "output")]
    watched = [(name, module) for name, module in modules if module not in apart]
    with hooked(watched, watch):
        yield order
