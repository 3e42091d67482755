"""Gradients reach every parameter that is to be trained."""

import torch
from torch import Tensor

from transformer_mt.model.named_parts import trained
from transformer_mt.training.proofs.forward_order import forward_order
from transformer_mt.training.proofs.subject import Failure, Subject

# A key's bias adds the same to all scores of a query, so softmax takes no notice of it: its gradient is 0 but for
# rounding.
WITHOUT_EFFECT = "k_proj.bias"


def gradients(subject: Subject) -> Failure | None:
    """Those of the loss of the batch, in the training's precision. fp16 needs a scale that is found in training, so it
    is fp32 then. An expert needs no gradient where no token was sent to it, nor where no logit depends on those that
    were: padding, and in the last layer of a stream its source.
    """
    model = subject.model
    parameters = trained(model)
    with forward_order(model) as order:
        loss = subject.loss("fp32" if subject.precision == "fp16" else subject.precision)
    outputs = [output for _, output in order.experts]
    all_found = torch.autograd.grad(loss, [*parameters.values(), *outputs], allow_unused=True)
    found, of_outputs = all_found[: len(parameters)], all_found[len(parameters) :]
    # What the loss does not read at all has None here, and is a fault.
    read_by_none = [
        expert
        for (expert, _), gradient in zip(order.experts, of_outputs, strict=True)
        if gradient is not None and not bool(gradient.any())
    ]
    idle = {id(parameter) for module in [*order.idle, *read_by_none] for parameter in module.parameters()}
    without = [
        name
        for (name, parameter), gradient in zip(parameters.items(), found, strict=True)
        if id(parameter) not in idle and _is_missing(name, gradient)
    ]
    if not without:
        return None
    # A gradient comes from behind. So the last one that is missing is nearest to the place where it was lost.
    last = max(without, key=order.of)
    more = f", nor do {len(without) - 1:,} others" if len(without) > 1 else ""
    return Failure(f"{last} gets no gradient{more}", last.rpartition(".")[0])


def _is_missing(name: str, gradient: Tensor | None) -> bool:
    if gradient is None or not bool(gradient.isfinite().all()):
        return True
    return not name.endswith(WITHOUT_EFFECT) and not bool(gradient.any())
