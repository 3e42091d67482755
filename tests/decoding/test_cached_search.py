"""A search over the cache finds what a search finds that computes every prefix anew; packed weights change nothing."""

import pytest
import torch
from measuring.uncached import PlainDecoder
from searches import LENGTHS, model_of, search, sources
from torch import Tensor, nn
from translators import MODELS_BY_NAME, make_translator, model_names

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.decoding.fast_layers.packed_layers import HalfLinear, Int8Linear, PackedLinear
from transformer_mt.decoding.fast_layers.packed_weights import packed
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.model.cache import LANES

LIMITS = [20, 3, 17, 24, 9]


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("name", model_names())
@torch.inference_mode()
def test_the_cache_finds_what_the_plain_decoder_finds(name: str, beam_size: int) -> None:
    model = model_of(name)
    src = sources(model.output.out_features, LENGTHS, 3)
    expected = search(PlainDecoder(model, src), LIMITS, beam_size)
    lengths = [len(found[0].tokens) for found in expected]
    assert max(lengths) > LANES, "the slots must outgrow what they begin with"
    assert min(lengths) < max(lengths)
    for decoder in (ModelDecoder(model, src), ModelDecoder(packed(model, "fp32"), src)):
        for ours, theirs in zip(search(decoder, LIMITS, beam_size), expected, strict=True):
            assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
            for mine, its in zip(ours, theirs, strict=True):
                assert mine.log_prob == pytest.approx(its.log_prob, abs=2e-3, rel=1e-4)


@pytest.mark.parametrize("name", model_names())
@torch.inference_mode()
def test_packed_weights_compute_the_same(name: str) -> None:
    model = model_of(name)
    src = sources(model.output.out_features, LENGTHS, 3)
    tgt_in = src.flip(0).masked_fill(src.flip(0) == PAD_ID, 5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = model(src, tgt_in)
    tolerance = 1e-4 * expected.abs().max()
    torch.testing.assert_close(packed(model, "fp32")(src, tgt_in), expected, atol=tolerance, rtol=1e-4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_no_linear_is_left_unpacked() -> None:
    model = packed(make_translator(MODELS_BY_NAME["mixtral"]).model, "int8")
    assert not [name for name, module in model.named_modules() if type(module) is nn.Linear]
    exact = [name for name, module in model.named_modules() if isinstance(module, PackedLinear)]
    assert exact
    assert all(name.endswith("router") for name in exact)


def random_linear(bias: bool = True, size: int = 64) -> tuple[Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(37, size, generator=generator) * torch.rand(37, 1, generator=generator)
    x = torch.randn(6, 3, size, generator=generator) * 10 ** torch.randn(6, 3, 1, generator=generator)
    return weight, torch.randn(37, generator=generator) if bias else None, x


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [64, 1])
def test_int8_is_the_product_of_rounded_numbers(size: int, bias: bool) -> None:
    """Against the same rounding in float64, where integer sums are exact; and within its bound of the true product."""
    weight, offset, x = random_linear(bias, size)
    found = Int8Linear(weight, offset)(x)

    def rounded(rows: Tensor) -> Tensor:
        step = (rows.abs().amax(dim=-1, keepdim=True) / 127).double()
        return (rows.double() / step).round() * step

    added = 0 if offset is None else offset.double()
    expected = rounded(x) @ rounded(weight).t() + added
    torch.testing.assert_close(found.double(), expected, atol=0, rtol=2e-4)
    # A number is off by half a step at most, so a product of sums by half a step times the sum of the others.
    true = x.double() @ weight.double().t() + added
    x_step, w_step = (t.abs().amax(dim=-1).double() / 127 for t in (x, weight))
    bound = 0.5 * (x_step[..., None] * weight.abs().sum(1) + w_step * x.abs().sum(-1)[..., None]) * 1.01
    assert ((found - true).abs() <= bound + 1e-6).all()
    assert size == 1 or ((found - true).abs() > 0).any()


def test_int8_of_a_row_does_not_depend_on_the_others() -> None:
    weight, bias, x = random_linear()
    linear = Int8Linear(weight, bias)
    together = linear(x)
    for i in range(6):
        assert torch.equal(linear(x[i : i + 1]), together[i : i + 1])
    assert linear(x[:0]).shape == (0, 3, 37)
    assert torch.equal(linear(torch.zeros(1, 64)), bias[None]) if bias is not None else False


def test_bf16_is_the_product_of_bf16_numbers() -> None:
    weight, bias, x = random_linear()
    assert bias is not None
    found = HalfLinear(weight, bias, torch.bfloat16)(x)
    assert found.dtype == torch.float32
    expected = x.bfloat16().double() @ weight.bfloat16().double().t() + bias.bfloat16().double()
    torch.testing.assert_close(found.double(), expected, atol=1e-2, rtol=2**-8)
