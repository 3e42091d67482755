"""What numba compiled for int8 against the same written with torch."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from translators import MODELS_BY_NAME, make_translator, model_names

from transformer_mt.decoding.fast_layers import packed_layers
from transformer_mt.decoding.fast_layers import packed_weights as packed
from transformer_mt.decoding.fast_layers import search_precision as precision
from transformer_mt.decoding.fast_layers.packed_layers import Int8Linear, PairedInt8Linear, pairs_work
from transformer_mt.model.parts.attention import MultiHeadAttention

needs_pairs = pytest.mark.skipif(not pairs_work(), reason="torch has no FBGEMM here")
EXTREMES = [0.0, -0.0, 1e-38, -1e-31, 1e-30, 2e-30, 3e38, -3e38, 1.0, -127.0, 0.5]
NUMBERS = st.sampled_from(EXTREMES) | st.floats(width=32, allow_nan=False, allow_infinity=False)
ROWS = st.integers(1, 40).flatmap(
    lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=1, max_size=5)
)


# numba compiles what is imported here, so only a process that runs these tests imports it.
@pytest.fixture(scope="module")
def int8_kernels() -> ModuleType:
    from transformer_mt.decoding.fast_layers import int8_kernels

    return int8_kernels


@pytest.fixture(params=["exact", pytest.param("paired", marks=needs_pairs)])
def kind(request: pytest.FixtureRequest) -> tuple:
    """A layer with torch, the same with numba, and the feed-forward with numba."""
    from transformer_mt.decoding.fast_layers import int8_layers

    if request.param == "exact":
        return Int8Linear, int8_layers.CompiledInt8Linear, int8_layers.CompiledReluFeedForward
    return PairedInt8Linear, int8_layers.CompiledPairedLinear, int8_layers.CompiledPairedFeedForward


def sums_of(seed: int, shape: tuple[int, int] = (7, 37)) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums, a step for each row, scale and bias."""
    generator = torch.Generator().manual_seed(seed)
    sums = torch.randint(-(2**22), 2**22, shape, generator=generator, dtype=torch.int32)
    steps, scale = torch.rand(shape[0], generator=generator), torch.rand(shape[1], generator=generator)
    return sums, steps, scale / 1000, torch.randn(shape[1], generator=generator)


@given(ROWS)
def test_rows_are_rounded_as_torch_rounds_them(int8_kernels: ModuleType, numbers: list[list[float]]) -> None:
    rows = torch.tensor(numbers, dtype=torch.float32)
    expected, expected_steps = packed_layers.rounded_rows(rows)
    rounded, steps = int8_kernels.round_rows(rows)
    assert torch.equal(rounded, expected)
    assert torch.equal(torch.from_numpy(steps), expected_steps.squeeze(1))
    assert int(rounded.int().abs().max()) <= 127


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_scaled(seed: int, int8_kernels: ModuleType) -> None:
    sums, steps, scale, bias = sums_of(seed)
    expected = sums.double() * scale.double() * steps.double()[:, None] + bias.double()
    found = int8_kernels.scale_(sums, steps.numpy(), scale, bias)
    assert found.data_ptr() == sums.data_ptr()
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_relu_on_the_way_is_relu_of_what_was_scaled(seed: int, int8_kernels: ModuleType) -> None:
    sums, steps, scale, bias = sums_of(seed)
    bias[:] -= 3000 * (seed == 0)  # rows without a number above 0
    expected, expected_steps = int8_kernels.round_rows(
        int8_kernels.scale_(sums.clone(), steps.numpy().copy(), scale, bias).relu()
    )
    rounded, found_steps = int8_kernels.scale_relu_round(sums, steps.numpy(), scale, bias)
    assert torch.equal(rounded, expected)
    assert np.array_equal(found_steps, expected_steps)
    assert bool(rounded.any()) == (seed > 0)


def linears() -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(3)
    return nn.Linear(24, 40).requires_grad_(False), nn.Linear(40, 24).requires_grad_(False)


def feed_forwards(kind: tuple, inner: nn.Linear, outer: nn.Linear) -> list[Callable[[Tensor], Tensor]]:
    """With torch and with numba."""
    plain, _, compiled = kind
    first, second = (plain(linear.weight, linear.bias) for linear in (inner, outer))
    return [lambda x: second(first(x).relu()), compiled(inner, outer)]


@pytest.mark.parametrize("number", [torch.nan, -torch.nan, torch.inf, -torch.inf])
@torch.inference_mode()
def test_what_is_no_number_does_not_get_lost(number: float, kind: tuple) -> None:
    """A row's own rounding and product must tell of it, and the other rows' know nothing of it."""
    x = torch.randn(4, 24, generator=torch.Generator().manual_seed(2))
    x[2, 5] = number
    for feed_forward in feed_forwards(kind, *linears()):
        finite = feed_forward(x).isfinite()
        assert not finite[2].any()
        assert finite[[0, 1, 3]].all()


@pytest.mark.parametrize("number", [torch.nan, -torch.nan, torch.inf])
@pytest.mark.parametrize("place", ["weight", "bias"])
@torch.inference_mode()
def test_a_weight_that_is_no_number_does_not_get_lost(place: str, number: float, kind: tuple) -> None:
    """Some nan have a sign, which relu must not take for that of a number."""
    inner, outer = linears()
    getattr(inner, place)[7] = number
    x = torch.randn(4, 24, generator=torch.Generator().manual_seed(2))
    for feed_forward in feed_forwards(kind, inner, outer):
        assert not feed_forward(x).isfinite().any()


@torch.inference_mode()
def test_a_score_that_is_no_number_does_not_get_lost(int8_kernels: ModuleType) -> None:
    slots = int8_kernels.pack_heads(torch.randn(1, 1, 16, 8, generator=torch.Generator().manual_seed(2)))
    for number in (torch.nan, -torch.nan, torch.inf):
        bias = torch.zeros(1, 1, 1, 16)
        bias[..., 3] = number
        assert not int8_kernels.attend(torch.ones(1, 1, 1, 8), slots, slots, bias, 1.0).isfinite().any()


@torch.inference_mode()
def test_the_feed_forward_is_that_of_torch(kind: tuple) -> None:
    x = torch.randn(5, 3, 24, generator=torch.Generator().manual_seed(4)) * 10
    x[1, 1] = 0
    expected, found = (feed_forward(x) for feed_forward in feed_forwards(kind, *linears()))
    assert found.shape == x.shape
    # A number near the middle of two integers may become the other one.
    torch.testing.assert_close(found, expected, atol=2e-2 * float(expected.abs().max()), rtol=0)
    assert (found - expected).abs().median() < 1e-5
    assert feed_forwards(kind, *linears())[1](x[:0]).shape == (0, 3, 24)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [64, 1])
@torch.inference_mode()
def test_a_linear_map_is_that_of_torch(size: int, bias: bool, kind: tuple) -> None:
    generator = torch.Generator().manual_seed(6)
    weight, offset = torch.randn(37, size, generator=generator), torch.randn(37, generator=generator)
    x = torch.randn(3, size, 6, generator=generator).transpose(1, 2)  # not contiguous
    plain, compiled = (layer(weight, offset if bias else None) for layer in kind[:2])
    torch.testing.assert_close(compiled(x), plain(x), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("kind", [pytest.param("paired", marks=needs_pairs)], indirect=True)
@pytest.mark.parametrize("place", [0, 1])
@torch.inference_mode()
def test_sums_of_pairs_are_exact(place: int, kind: tuple) -> None:
    """Also where every product of a pair is the largest that there is, and none of a row's is a rounded one."""
    generator = torch.Generator().manual_seed(8)
    rows = torch.randint(-127, 128, (9, 512), generator=generator)
    weight = torch.randint(-63, 64, (33, 512), generator=generator)
    rows[:, 0], weight[:, 0] = 127, 63  # so that all steps are 1
    for i, (sign, other) in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)]):
        rows[i, 1:], weight[i, 1:] = sign * 127, other * 63
    found = kind[place](weight.float(), torch.zeros(33))(rows.float())
    assert torch.equal(found, (rows @ weight.t()).float())


def unpacked(packed_heads: Tensor, head_dim: int) -> Tensor:
    return packed_heads[..., :head_dim].float() * packed_heads.view(torch.float32)[..., -1:]


@pytest.mark.parametrize("head_dim", [4, 6, 32, 37])
def test_keys_and_values_are_rounded_one_by_one(head_dim: int, int8_kernels: ModuleType) -> None:
    generator = torch.Generator().manual_seed(head_dim)
    scale = 10 ** torch.randn(3, 2, 5, 1, generator=generator)
    heads = (torch.randn(3, 5, 2, head_dim, generator=generator).transpose(1, 2) * scale).contiguous()
    heads[1, 1, 3] = 0
    for layout in (heads, heads.transpose(1, 2).contiguous().transpose(1, 2)):
        slots = int8_kernels.pack_heads(layout)
        step = heads.abs().amax(dim=-1, keepdim=True) / 127
        assert ((unpacked(slots, head_dim) - heads).abs() <= 0.5001 * step).all()
        assert torch.equal(slots.view(torch.float32)[..., -1:], step.clamp_min(1e-30 / 127))


@pytest.mark.parametrize("num_heads", [1, 4])
@pytest.mark.parametrize(("num_rows", "group", "bias_heads"), [(1, 1, 1), (5, 1, 1), (3, 2, 1), (1, 4, 4), (5, 2, 4)])
@torch.inference_mode()
def test_attention_over_slots_is_that_of_torch(
    num_rows: int, group: int, bias_heads: int, num_heads: int, int8_kernels: ModuleType
) -> None:
    """Over the same rounded keys and values; the slots are the first of more, and each row sees some of them."""
    head_dim, width, capacity, num_sentences = 8, 16, 32, 6
    group, bias_heads = min(group, num_heads), min(bias_heads, num_heads)
    generator = torch.Generator().manual_seed(num_rows)
    torch.manual_seed(0)
    attention = MultiHeadAttention(num_heads * head_dim, num_heads, 0.0, True, num_heads // group).eval()
    shape = (num_sentences, num_heads // group, capacity, head_dim)
    k, v = (int8_kernels.pack_heads(4 * torch.randn(shape, generator=generator))[:, :, :width] for _ in range(2))
    q = torch.randn(num_sentences, num_rows, num_heads, head_dim, generator=generator).transpose(1, 2)
    bias = torch.randn(num_sentences, bias_heads, num_rows, width, generator=generator)
    hidden = torch.rand(num_sentences, 1, num_rows, width, generator=generator) < 0.6
    hidden[..., 3] = False
    bias = bias.masked_fill(hidden, -torch.inf)
    expected = attention.attend_to_slots(q, unpacked(k, head_dim), unpacked(v, head_dim), bias)
    found = int8_kernels.attend(q, k, v, bias, attention.scale)
    torch.testing.assert_close(attention.out_proj(found.flatten(2)), expected, atol=2e-5, rtol=1e-5)
    alone = int8_kernels.attend(q[2:3], k[2:3], v[2:3], bias[2:3], attention.scale)
    assert torch.equal(alone, found[2:3]), "nothing of another sentence"


@torch.inference_mode()
def test_attention_far_apart_in_score_is_finite(int8_kernels: ModuleType) -> None:
    """Scores of which all but one vanish, and scores that are all the same large number."""
    heads = torch.tensor([1.0, 0, 0, 0]).expand(1, 1, 16, 4).clone()
    heads[0, 0, 5, 0] = 3
    slots = int8_kernels.pack_heads(heads)
    for large in (1e3, 1e6, -1e6):
        found = int8_kernels.attend(torch.full((1, 1, 1, 4), large), slots, slots, torch.zeros(1, 1, 1, 16), 1.0)
        assert found.flatten().tolist() == pytest.approx([3.0 if large > 0 else 1.0, 0, 0, 0])


@pytest.mark.parametrize("name", model_names())
@torch.inference_mode()
def test_steps_are_as_near_to_fp32_with_and_without(name: str, kind: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "sums_in_pairs", lambda: kind[0] is PairedInt8Linear)
    model = make_translator(MODELS_BY_NAME[name]).model
    generator = torch.Generator().manual_seed(3)
    src, tgt = (torch.randint(4, model.output.out_features, (24, 20), generator=generator) for _ in range(2))

    def steps(precision: str) -> Tensor:
        twin = packed.packed(model, precision)
        cache = twin.start(src)
        return torch.stack([twin.decode_step(tokens, cache) for tokens in tgt.t()])

    exact, found = steps("fp32"), steps("int8")
    monkeypatch.setattr(packed, "compiled_int8", lambda: None)
    plain_error, error = ((logits - exact).abs().mean() for logits in (steps("int8"), found))
    assert 0 < error < 1.5 * plain_error


@pytest.mark.parametrize("name", model_names())
@torch.inference_mode()
def test_a_model_computes_the_same_with_and_without(name: str, kind: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "sums_in_pairs", lambda: kind[0] is PairedInt8Linear)
    plain_layer, compiled_layer, _ = kind
    model = make_translator(MODELS_BY_NAME[name]).model
    src = torch.randint(4, model.output.out_features, (6, 9), generator=torch.Generator().manual_seed(3))
    compiled = packed.packed(model, "int8")
    assert any(isinstance(module, compiled_layer) for module in compiled.modules())
    monkeypatch.setattr(packed, "compiled_int8", lambda: None)
    plain = packed.packed(model, "int8")
    assert not any(isinstance(module, compiled_layer) for module in plain.modules())
    assert any(isinstance(module, plain_layer) for module in plain.modules())
    exact, expected, found = model(src, src), plain(src, src), compiled(src, src)
    # Where a number near the middle of two integers became the other one, all that follows differs a little.
    assert (found - expected).abs().median() < 1e-4 * expected.abs().mean()
    assert float((found - exact).abs().mean()) == pytest.approx(float((expected - exact).abs().mean()), rel=0.2)


def test_the_constants_are_those_of_the_weights(int8_kernels: ModuleType) -> None:
    assert float(int8_kernels._LARGEST_INT8) == packed_layers.LARGEST_INT8
    assert float(int8_kernels._SMALLEST) == float(np.float32(packed_layers.SMALLEST))


def test_without_numba_int8_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    model = make_translator(MODELS_BY_NAME["experts alone"]).model
    assert precision.choose_search_precision("int8", cpu, model).reason == "as asked"
    monkeypatch.setattr(precision, "has_numba", lambda: False)
    assert "numba" in precision.choose_search_precision("int8", cpu, model).reason
