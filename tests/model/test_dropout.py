"""Dropout: the shares, the scale, the seed, and the mean over many draws."""

import math

import pytest
import torch

from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.dropout import Dropout, add_dropout, dropout, keep_mask, relu_dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_as_many_are_dropped_as_asked_and_the_rest_makes_up_for_them(p: float) -> None:
    torch.manual_seed(3)
    count = 400_000
    out = dropout(torch.ones(count), p)
    # Four standard deviations of a binomial share; the rounding of p to 16 bits is far below.
    assert (out == 0).float().mean().item() == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / count))
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=1e-4)


def test_neighbours_are_dropped_independently_of_each_other() -> None:
    """One 64-bit number makes four elements: each of the four, and each pair of them, has its own chance."""
    torch.manual_seed(0)
    mask = keep_mask(torch.Size((200_000, 4)), 0.5).double()
    covariance = torch.cov(mask.T)
    torch.testing.assert_close(covariance, 0.25 * torch.eye(4, dtype=torch.double), atol=4e-3, rtol=0)


def test_the_mask_is_a_function_of_torchs_generator_and_the_next_one_another() -> None:
    x = torch.ones(3, 7, 11)
    torch.manual_seed(5)
    first, second = dropout(x, 0.4), dropout(x, 0.4)
    torch.manual_seed(5)
    assert torch.equal(dropout(x, 0.4), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_is_dropped_and_scaled_as_the_value_was(dtype: torch.dtype) -> None:
    x = torch.randn(5, 9, dtype=dtype, requires_grad=True)
    out = dropout(x, 0.3)
    assert out.dtype == dtype
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, out)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_added_and_after_relu_it_is_the_same_dropout(p: float, dtype: torch.dtype) -> None:
    x, y = (torch.randn(6, 5, 16, dtype=dtype, requires_grad=True) for _ in range(2))
    upstream = torch.randn(6, 5, 16, dtype=dtype)
    for fused, plain in (
        (lambda: add_dropout(x, y, p), lambda: x + dropout(y, p)),
        (lambda: relu_dropout(x, p) + y, lambda: dropout(x.relu(), p) + y),
    ):
        results = []
        for formula in (fused, plain):
            torch.manual_seed(1)
            out = formula()
            results.append((out, *torch.autograd.grad(out, (x, y), upstream)))
        torch.testing.assert_close(*results)


def test_bf16_is_added_to_float32() -> None:
    x, y = torch.randn(3, 8), torch.randn(3, 8, dtype=torch.bfloat16, requires_grad=True)
    torch.manual_seed(1)
    out = add_dropout(x, y, 0.3)
    assert out.dtype == torch.float32
    torch.manual_seed(1)
    assert torch.equal(out, x + dropout(y, 0.3))


@pytest.mark.parametrize("p", [0.0, 1e-9])
def test_nothing_is_changed_where_nothing_is_dropped(p: float) -> None:
    x = torch.randn(64, 64)
    assert torch.equal(dropout(x, p), x)


def test_a_probability_next_to_one_stays_finite() -> None:
    assert dropout(torch.ones(100_000), 1 - 1e-9).isfinite().all()


def test_the_layer_is_the_identity_outside_training() -> None:
    layer, x = Dropout(0.5), torch.randn(4, 4)
    assert torch.equal(layer.eval()(x), x)
    assert not torch.equal(layer.train()(x), x)


def test_the_mean_of_many_attentions_with_dropout_is_the_attention_without() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 0.3, bias=False)
    x = torch.randn(1, 6, 8)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    expected = attention.eval()(x, x, mask)
    many = attention.train()(x.expand(20_000, -1, -1), x.expand(20_000, -1, -1), mask)
    assert (many[0] != many[1]).any()
    torch.testing.assert_close(many.mean(dim=0), expected[0], atol=0.02, rtol=0)
