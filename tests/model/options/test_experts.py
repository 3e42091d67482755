"""A mixture of experts is what each token gets from its experts, and its load balancing is the paper's."""

import math
from typing import Any

import pytest
import torch
from plain_model import VOCAB, random_ids
from small_models import make_config

from transformer_mt.model.layers import EncoderLayer
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.parts.experts import MixtureOfExperts, load_balancing_loss
from transformer_mt.model.parts.layer_context import LayerContext, Routing
from transformer_mt.model.transformer import Transformer


def make_experts(**changes: Any) -> MixtureOfExperts:
    torch.manual_seed(0)
    return MixtureOfExperts(make_config(**{"num_experts": 4, "experts_per_token": 2, **changes}))


def test_a_mixture_is_what_each_token_gets_from_its_experts() -> None:
    layer = make_experts()
    x = torch.randn(3, 5, 16)
    result = layer(x)
    for row in range(3):
        for column in range(5):
            token = x[row, column]
            scores = [(token @ weight).item() for weight in layer.router.weight]
            best = sorted(range(4), key=lambda e: -scores[e])[:2]
            total = sum(math.exp(scores[e]) for e in best)
            expected = sum(math.exp(scores[e]) / total * layer.experts[e](token) for e in best)
            torch.testing.assert_close(result[row, column], expected, atol=1e-5, rtol=1e-5)


def test_a_single_expert_is_weighted_by_its_share_among_all() -> None:
    """Fedus et al. 2021, equation 2. By its share in itself, 1, it would leave the router without a gradient."""
    layer = make_experts(experts_per_token=1)
    token = torch.randn(16)
    scores = [(token @ weight).item() for weight in layer.router.weight]
    best = max(range(4), key=lambda e: scores[e])
    share = math.exp(scores[best]) / sum(math.exp(score) for score in scores)
    result = layer(token[None])
    torch.testing.assert_close(result[0], share * layer.experts[best](token), atol=1e-5, rtol=1e-5)
    (gradient,) = torch.autograd.grad(result.square().sum(), [layer.router.weight])
    assert gradient.any()


def test_equal_experts_are_one_dense_layer() -> None:
    layer = make_experts()
    for expert in layer.experts[1:]:
        expert.load_state_dict(layer.experts[0].state_dict())
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(layer(x), layer.experts[0](x))


def test_one_expert_is_the_dense_layer_itself() -> None:
    layer = EncoderLayer(make_config(num_experts=1))
    assert not any(isinstance(module, MixtureOfExperts) for module in layer.modules())


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([[0], [1], [2], [3]], 1.0),  # evenly: 4 * (1/4 * 1/4) * 4
        ([[0], [0], [0], [0]], 4.0),  # all to one
        ([[0], [0], [1], [1]], 2.0),  # two of four
    ],
)
def test_the_load_balancing_loss_by_hand(chosen: list[list[int]], expected: float) -> None:
    choices = torch.tensor(chosen)
    scores = torch.full((4, 4), -50.0).scatter(1, choices, 50.0)  # a router that is sure
    assert load_balancing_loss(scores, choices).item() == pytest.approx(expected)


def test_padding_has_no_part_in_the_load_balancing() -> None:
    layer = make_experts()
    x, real = torch.randn(2, 6, 16), torch.ones(2, 6, dtype=torch.bool)
    real[1, 2:] = False
    losses = []
    for vectors, mask in ((x, real), (x.masked_fill(~real[..., None], 9.0), real), (x[real][None], None)):
        routing = Routing()
        layer(vectors, LayerContext(None, lambda heads: heads, mask, routing))
        losses.append(routing.losses[0].item())
    assert losses == pytest.approx([losses[0]] * 3)


def test_the_load_balancing_loss_is_added_by_its_weight_and_has_a_gradient() -> None:
    src, tgt = random_ids(3, 7), random_ids(3, 5, seed=2)
    sums = []
    for weight in (0.0, 0.5):
        torch.manual_seed(0)
        model = Transformer(make_config(num_experts=4, load_balancing_weight=weight), VOCAB, VOCAB).train()
        loss = batch_loss(model, src, tgt, tgt, 0.1)
        assert loss.load_balancing is not None
        router = model.get_parameter("encoder.layers.0.feed_forward.router.weight")
        (gradient,) = torch.autograd.grad(loss.loss, [router])
        sums.append((loss.loss.item(), loss.load_balancing.item(), gradient))
    (plain, balance, before), (with_it, same, after) = sums
    assert same == pytest.approx(balance)
    assert 15 <= balance <= 15 * 4  # 15 target tokens, each layer between even and all on one
    assert with_it == pytest.approx(plain + 0.5 * balance)
    assert not torch.equal(before, after)
    model.eval()
    assert batch_loss(model, src, tgt, tgt, 0.1).load_balancing is None  # evaluation is of the translation alone
