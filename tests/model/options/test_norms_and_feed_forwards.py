"""Norms by hand, and feed-forwards against their formulas."""

import math
from collections.abc import Callable

import pytest
import torch
from small_models import make_config
from torch import Tensor

from transformer_mt.model.parts.feed_forward import ACTIVATIONS, GatedFeedForward, make_dense
from transformer_mt.model.parts.norms import NORMS, make_norm

# Norms

NORMED = {  # 1, 2, -2, 4, and the names of what is trained
    # Mean 1.25, variance (0.25^2 + 0.75^2 + 3.25^2 + 2.75^2) / 4 = 4.6875: biased, divided by 4 and not by 3.
    "layernorm": ([-0.25 / 4.6875**0.5, 0.75 / 4.6875**0.5, -3.25 / 4.6875**0.5, 2.75 / 4.6875**0.5], "weight bias"),
    # Mean square (1 + 4 + 4 + 16) / 4 = 6.25, its root 2.5.
    "rmsnorm": ([0.4, 0.8, -0.8, 1.6], "weight"),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_by_hand(name: str) -> None:
    expected, trained = NORMED[name]
    norm = make_norm(make_config(norm=name, d_model=4, num_heads=1))
    weight = torch.tensor([1.0, 2.0, 1.0, 0.5])
    with torch.no_grad():
        norm.weight.copy_(weight)
    result = norm(torch.tensor([1.0, 2.0, -2.0, 4.0]))
    torch.testing.assert_close(result, torch.tensor(expected) * weight, atol=1e-5, rtol=0)
    assert [parameter for parameter, _ in norm.named_parameters()] == trained.split()


# Feed-forwards

SHARE_OF_ITSELF: dict[str, Callable[[Tensor], Tensor]] = {  # what each number is multiplied by
    "relu": lambda x: (x > 0).float(),
    "gelu": lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "swiglu": torch.sigmoid,
    "geglu": lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_feed_forward_is_its_formula(name: str) -> None:
    torch.manual_seed(0)
    layer = make_dense(make_config(activation=name))
    x = torch.randn(2, 3, 16)
    inner = x @ layer.in_proj.weight.T + layer.in_proj.bias
    gate = x @ layer.gate_proj.weight.T + layer.gate_proj.bias if isinstance(layer, GatedFeedForward) else inner
    activated = gate * SHARE_OF_ITSELF[name](gate) * (inner if isinstance(layer, GatedFeedForward) else 1)
    torch.testing.assert_close(layer(x), activated @ layer.out_proj.weight.T + layer.out_proj.bias)
    assert layer.in_proj.weight.shape == (24, 16)  # the real inner size, no hidden 2/3
    assert isinstance(layer, GatedFeedForward) == name.endswith("glu")
