"""Dropout: the shares, the scale, the seed, and the mean over many draws."""

import math

import pytest
import torch

from transformer_mt.model.cpu import dropout as cpu_dropout
from transformer_mt.model.cpu.dropout import new_draw
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.dropout import Dropout, add_dropout, dropout, relu_dropout


@pytest.fixture(params=[True, False], ids=["numba", "torch"], autouse=True)
def with_numba(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With numba and without."""
    if not request.param:
        monkeypatch.setattr(cpu_dropout, "kernels_for", lambda dtype: None)
    assert (new_draw(torch.ones(3), 0.1) is not None) == request.param
    return request.param


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_as_many_are_dropped_as_asked_and_the_rest_makes_up_for_them(p: float) -> None:
    torch.manual_seed(3)
    count = 400_000
    out = dropout(torch.ones(count), p)
    # Four standard deviations of a binomial share; the rounding of p is far below.
    assert (out == 0).float().mean().item() == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / count))
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=1e-4)


@pytest.mark.parametrize("width", [4, 7, 64])
def test_neighbours_are_dropped_independently_of_each_other(width: int) -> None:
    """In a row, of which neighbours may come from one random number, and in a column."""
    torch.manual_seed(0)
    rows = 800_000 // width
    mask = (dropout(torch.ones(rows, width), 0.5) > 0).double()
    five_deviations = 5 * 0.25 / math.sqrt(rows)
    covariance = torch.cov(mask.T)
    torch.testing.assert_close(covariance, 0.25 * torch.eye(width, dtype=torch.double), atol=five_deviations, rtol=0)
    for lag in (1, 2, 16, 256, 1000):
        together = (mask[lag:] * mask[:-lag]).mean(dim=0)
        torch.testing.assert_close(together, torch.full_like(together, 0.25), atol=2 * five_deviations, rtol=0)


def test_draws_that_follow_each_other_are_independent() -> None:
    torch.manual_seed(0)
    count = 200_000
    masks = torch.stack([dropout(torch.ones(count), 0.5) > 0 for _ in range(12)]).double()
    expected = 0.25 * torch.eye(12, dtype=torch.double)
    torch.testing.assert_close(torch.cov(masks), expected, atol=5 * 0.25 / math.sqrt(count), rtol=0)


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrow_type_is_added_to_float32(dtype: torch.dtype) -> None:
    x, y = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8, dtype=dtype, requires_grad=True)
    torch.manual_seed(1)
    out = add_dropout(x, y, 0.3)
    out.backward(torch.ones_like(out))
    assert out.dtype == torch.float32
    torch.manual_seed(1)
    dropped = dropout(y, 0.3)
    assert torch.equal(out == x, dropped == 0)
    torch.testing.assert_close(out, x + dropped, rtol=0, atol=0.03)  # in which y may have been rounded once more
    assert x.grad is not None
    assert y.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))
    assert y.grad.dtype == dtype
    torch.testing.assert_close(y.grad * y, dropped, rtol=0.02, atol=0)


def test_a_gradient_has_a_gradient() -> None:
    x = torch.arange(1.0, 9.0, requires_grad=True)
    torch.manual_seed(3)
    factors = dropout(torch.ones_like(x), 0.5)
    # In x, of positive numbers: f x^3, x + f x^3, f^3 x^3, whose second derivatives are 6 x times f, f and f^3.
    for formula, expected in (
        (lambda: dropout(x, 0.5) * x * x, 6 * x * factors),
        (lambda: add_dropout(x, x * x * x, 0.5), 6 * x * factors),
        (lambda: relu_dropout(x, 0.5) ** 3, 6 * x * factors**3),
    ):
        torch.manual_seed(3)
        (first,) = torch.autograd.grad(formula().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, expected.detach())


def test_broadcasting_is_torchs() -> None:
    x, y = torch.ones(3, 4), torch.ones(1, 4)
    assert add_dropout(x, y, 0.5).shape == add_dropout(y, x, 0.5).shape == (3, 4)


def test_what_is_no_number_is_seen_behind_relu() -> None:
    nan = torch.full((1000,), torch.nan)
    for x in (nan, -nan):
        for dtype in (torch.float32, torch.bfloat16):
            row = x.to(dtype).requires_grad_()
            out = relu_dropout(row, 0.1)
            assert 800 < out.isnan().sum() <= 1000
            (grad,) = torch.autograd.grad(out, row, torch.ones_like(out))
            assert grad.count_nonzero() > 800


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
