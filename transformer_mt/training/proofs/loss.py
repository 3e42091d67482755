"""The loss falls on one batch: a small step against the gradient lowers it by about what the gradient promises, with
all parameters and with those of each part of the model alone.
"""

import re

import torch
from torch import Tensor, nn

from transformer_mt.model.named_parts import trained
from transformer_mt.training.proofs.forward_order import forward_order
from transformer_mt.training.proofs.subject import Failure, Subject

# In units of the loss. Below the smallest a step's effect would be hidden by rounding.
LARGEST_FALL, SMALLEST_FALL, SHORTER = 1e-3, 1e-5, 8
LONGEST_STEP = 0.1  # in units of the length of the weights
ENOUGH = 0.5  # of the fall that the gradient promises, which for small steps comes near to all of it
PART = re.compile(r".*\blayers\.\d+\.\w+|.*(?=\.)")  # decoder.layers.0.self_attn, or the module of the parameter

Moved = list[tuple[nn.Parameter, Tensor]]  # with the gradient


def loss_falls(subject: Subject) -> Failure | None:
    """In fp32, because fewer digits would hide so small a step."""
    parameters = trained(subject.model)
    with forward_order(subject.model) as order:
        loss = subject.loss("fp32")
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    parts: dict[str, Moved] = {}
    in_order = sorted(zip(parameters.items(), found, strict=True), key=lambda each: order.of(each[0][0]))
    for (name, parameter), gradient in in_order:
        part = PART.match(name)
        if part is not None and gradient is not None:
            # Put behind: a part stands where its last parameter does.
            parts[part.group()] = [*parts.pop(part.group(), []), (parameter, gradient)]
    before = float(loss.detach())
    falls = _falls(subject, before, [pair for moved in parts.values() for pair in moved])
    seen = _fall_together(subject, before, parts)
    # A gradient comes from behind. So the last part with a wrong one is nearest to the mistake.
    behind = [part for part in reversed(parts) if part not in seen]
    wrong = next((part for part in behind if not _falls(subject, before, parts[part])), None)
    if falls and wrong is None:
        return None
    return Failure("a small step against the gradient does not lower the loss as it should", wrong or "the model")


def _fall_together(subject: Subject, before: float, parts: dict[str, Moved]) -> set[str]:
    """The parts of which one step of all shows, by its size, that each lowers the loss: each is moved so far that it
    should lower it alike, and with one of them the wrong way round the fall would lack two shares. None where it is
    off by a quarter of a share; then each part is to be looked at by itself.
    """
    share = LARGEST_FALL * before / len(parts)
    steps = {}
    for part, moved in parts.items():
        slope, length = _slope(moved), _length(moved)
        if slope > 0 and share / slope <= LONGEST_STEP * length / slope**0.5:
            steps[part] = share / slope
    scaled = [(p, gradient, steps[part]) for part in steps for p, gradient in parts[part]]
    rise = _after(subject, [(p, gradient, -step) for p, gradient, step in scaled])
    difference = (rise - _after(subject, scaled)) / 2  # of both directions, so that the curvature has no part in it
    return set(steps) if abs(difference - len(steps) * share) <= share / 4 else set()


def _falls(subject: Subject, before: float, moved: Moved) -> bool:
    """Whether some small step lowers the loss enough. Also where the gradient is too small for any to be seen."""
    if (slope := _slope(moved)) == 0:
        return True
    step = min(LARGEST_FALL * before / slope, LONGEST_STEP * (_length(moved) or 1.0) / slope**0.5)
    is_seen = False
    while step * slope >= SMALLEST_FALL * before:
        is_seen = True
        if before - _after(subject, [(p, gradient, step) for p, gradient in moved]) >= ENOUGH * step * slope:
            return True
        step /= SHORTER
    return not is_seen


def _slope(moved: Moved) -> float:
    """By how much the loss falls in a step of 1, if it fell evenly: the squared length of the gradient."""
    return sum(float(torch.linalg.vector_norm(gradient)) ** 2 for _, gradient in moved)


def _length(moved: Moved) -> float:
    return sum(float(torch.linalg.vector_norm(parameter.detach())) ** 2 for parameter, _ in moved) ** 0.5


def _after(subject: Subject, steps: list[tuple[nn.Parameter, Tensor, float]]) -> float:
    """The loss after a step, which is taken back."""
    kept = [parameter.detach().clone() for parameter, _, _ in steps]
    with torch.no_grad():
        for parameter, gradient, step in steps:
            parameter.sub_(gradient, alpha=step)
        loss = float(subject.loss("fp32"))
        for (parameter, _, _), weight in zip(steps, kept, strict=True):
            parameter.copy_(weight)
    return loss
