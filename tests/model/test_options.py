"""Each option against an oracle: a formula written out, a case worked out by hand, torch, or another option."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.layers import DecoderLayer, EncoderLayer
from transformer_mt.model.loss import batch_loss, cross_entropy_sums
from transformer_mt.model.masks import causal_mask, itself, window_mask
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.experts import MixtureOfExperts, load_balancing_loss
from transformer_mt.model.parts.feed_forward import ACTIVATIONS, GatedFeedForward, make_dense
from transformer_mt.model.parts.layer_context import LayerContext, Routing
from transformer_mt.model.parts.norms import NORMS, make_norm
from transformer_mt.model.parts.positions import (
    POSITIONS,
    Positions,
    RelativeBias,
    RotaryPositions,
    alibi_slopes,
    relative_buckets,
)
from transformer_mt.model.stack import positions_of
from transformer_mt.model.transformer import Transformer

VOCAB = 40


def make_config(**changes: Any) -> ModelConfig:
    values = {
        "d_model": 16, "d_ff": 24, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.0,
        "max_len": 32,
    }  # fmt: skip
    return ModelConfig(**{**values, **changes})


def random_ids(*size: int, seed: int = 1) -> Tensor:
    return torch.randint(4, VOCAB, size, generator=torch.Generator().manual_seed(seed))


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


# Experts


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


# Positions


def dot(kind: Positions, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    return (q @ k).item()


def turned_dot(kind: Positions, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """The real part of the product of complex numbers, that of the key conjugated, by the distance."""
    half = len(q) // 2
    angles = torch.tensor([(i - j) * 10000 ** (-n / half) for n in range(half)])
    turn = torch.polar(torch.ones(half), angles)
    return (torch.complex(q[:half], q[half:]) * turn * torch.complex(k[:half], -k[half:])).real.sum().item()


def biased_dot(kind: Positions, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    assert isinstance(kind, RelativeBias)
    bucket = i - j if i >= j else 16 + j - i  # of 32 that look both ways, near ones have one distance each
    return (q @ k + kind.embedding.weight[bucket, head]).item()


def sloped_dot(kind: Positions, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    return (q @ k).item() - abs(i - j) / 4 ** (head + 1)  # of 4 heads: 2^-2, 2^-4, 2^-6, 2^-8


def waves(kind: Positions, i: int) -> Tensor:
    return torch.tensor([(math.cos if n % 2 else math.sin)(i / 10000 ** (n // 2 * 2 / 16)) for n in range(16)])


def trained_row(kind: Positions, i: int) -> Tensor:
    return kind.get_parameter("embedding.weight")[i]


def nothing(kind: Positions, i: int) -> Tensor:
    return torch.zeros(16)


# What is added to the embedding at position i, and the score of a query at i and a key at j, before it is scaled.
FORMULAS: dict[str, tuple[Callable[..., Tensor], Callable[..., float]]] = {
    "sinusoidal": (waves, dot),
    "learned": (trained_row, dot),
    "rotary": (nothing, turned_dot),
    "relative_bias": (nothing, biased_dot),
    "alibi": (nothing, sloped_dot),
    "none": (nothing, dot),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_their_formula(name: str) -> None:
    """In an encoder's self-attention, at distances of both signs."""
    added, score = FORMULAS[name]
    torch.manual_seed(0)
    kind = POSITIONS[name].make(make_config(), 32, False)
    at, x = torch.arange(7)[None], torch.randn(1, 7, 16)
    q, k = torch.randn(2, 1, 4, 7, 4)
    for i in range(7):
        torch.testing.assert_close(kind(x, at)[0, i], x[0, i] + added(kind, i), atol=1e-5, rtol=1e-5)
    turn, bias = kind.rotation(at), kind.bias(None, at, at)
    scores = turn(q) @ turn(k).mT + (0 if bias is None else bias)
    for head, i, j in itertools.product(range(4), range(7), range(7)):
        expected = score(kind, q[0, head, i], k[0, head, j], i, j, head)
        assert scores[0, head, i, j].item() == pytest.approx(expected, abs=1e-5)


def rotate(vectors: Tensor, at: list[int], head_dim: int = 8) -> Tensor:
    """vectors (length, head_dim) at these positions."""
    positions = RotaryPositions(make_config(d_model=head_dim, num_heads=1), 300, causal=True)
    return positions.rotation(torch.tensor([at]))(vectors[None, None])[0, 0]


def test_rotary_is_a_product_of_complex_numbers() -> None:
    vectors, at = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), [0, 1, 7, 250]
    for i, position in enumerate(at):
        pairs = torch.complex(vectors[i, :4], vectors[i, 4:]).to(torch.complex128)
        angles = torch.tensor([position * 10000 ** (-2 * k / 8) for k in range(4)], dtype=torch.float64)
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        expected = torch.cat((turned.real, turned.imag)).float()
        torch.testing.assert_close(rotate(vectors, at)[i], expected, atol=1e-5, rtol=1e-5)


def test_a_rotary_score_depends_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))
    scores = [(rotate(q, [i]) @ rotate(k, [i - 5]).T).item() for i in (5, 6, 100, 299)]
    assert scores == pytest.approx([scores[0]] * 4, abs=1e-4)
    assert abs((rotate(q, [9]) @ rotate(k, [3]).T).item() - scores[0]) > 1e-3


def test_relative_buckets_by_hand() -> None:
    """T5's formula at the edges. Both ways: 16 each, 8 of them exact, the rest by log(n / 8) / log(16) * 8."""
    both = {
        0: 0, -1: 1, -7: 7, -8: 8, -9: 8,  # 8 + floor(log(9/8) / log(16) * 8) = 8 + floor(0.34)
        -11: 8, -12: 9,  # 8 + floor(1.17): the first distance past 8 * 16^(1/8) = 11.3
        -16: 10, -32: 12, -64: 14, -90: 14, -91: 15, -127: 15, -128: 15, -1000: 15,
        1: 17, 7: 23, 8: 24, 12: 25, 128: 31, 1000: 31,
    }  # fmt: skip
    distances = torch.tensor(list(both))
    assert relative_buckets(distances, causal=False).tolist() == list(both.values())
    # Looking back only: 32 buckets, 16 exact, 16 + log(n / 16) / log(8) * 16.
    back = {0: 0, 3: 0, -1: 1, -15: 15, -16: 16, -17: 16, -19: 17, -32: 21, -64: 26, -127: 31, -128: 31, -500: 31}
    assert relative_buckets(torch.tensor(list(back)), causal=True).tolist() == list(back.values())


def test_the_relative_bias_is_added_to_the_scores_of_its_head_and_distance() -> None:
    bias = RelativeBias(make_config(), 32, causal=True)
    at = torch.arange(5)[None]
    added = bias.bias(causal_mask(5), at, at)
    assert added.shape == (1, 4, 5, 5)
    for head, query, key in ((0, 4, 1), (3, 2, 2), (1, 3, 0)):
        assert added[0, head, query, key] == bias.embedding.weight[query - key, head]
    assert added[0, :, 1, 2].tolist() == [-math.inf] * 4


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_the_relative_bias_lies_as_gpus_take_it(causal: bool, masked: bool) -> None:
    """CUDA's kernel refuses a bias whose keys are not side by side; MPS has no float64."""

    class Dtypes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            assert not (isinstance(result, Tensor) and result.dtype == torch.float64), func
            return result

    bias = RelativeBias(make_config(), 400, causal)
    at = torch.arange(300)[None]
    with Dtypes():
        added = bias.bias(causal_mask(300) if masked else None, at, at)
        assert added is not None
    assert added.stride(-1) == 1
    seen = added.masked_fill(~causal_mask(300), 0.0)
    expected = bias.embedding(relative_buckets(at[0] - at[0][:, None], causal)).permute(2, 0, 1)[None]
    assert torch.equal(seen, expected.masked_fill(~causal_mask(300), 0.0))


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (6, [2, 4, 6, 8, 1, 3]),  # of 4 heads; then of 8 heads the first and the third
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_the_slopes_of_alibi_by_hand(num_heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(num_heads) == pytest.approx([2**-exponent for exponent in exponents])


def test_alibi_is_causal_where_the_mask_is_and_counts_no_padding() -> None:
    bias = POSITIONS["alibi"].make(make_config(), 32, True).bias
    at = torch.arange(3)[None]
    added = bias(causal_mask(3), at, at)
    assert added is not None
    assert added[0, 0].tolist() == [[0, -math.inf, -math.inf], [-0.25, 0, -math.inf], [-0.5, -0.25, 0]]
    assert added.stride(-1) == 1, "as CUDA's kernel takes it"
    shifted = bias(causal_mask(3), at + 7, at + 7)
    assert shifted is not None
    assert torch.equal(shifted, added), "the distance alone"


def test_positions_none_is_blind_to_order_in_the_encoder() -> None:
    torch.manual_seed(0)
    model = Transformer(make_config(positions="none"), VOCAB, VOCAB).eval()
    src = random_ids(1, 6)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    memory = model.encode(src)[0][:, order]
    torch.testing.assert_close(model.encode(src[:, order])[0], memory, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_stay_out_of_cross_attention(positions: str) -> None:
    """What the memory says does not depend on the order in which it is stored."""
    torch.manual_seed(0)
    model = Transformer(make_config(positions=positions), VOCAB, VOCAB).eval()
    memory, src_mask = model.encode(random_ids(1, 6))
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    tgt = random_ids(1, 5, seed=3)
    expected = model.decode(tgt, memory, src_mask)
    torch.testing.assert_close(model.decode(tgt, memory[:, order], src_mask), expected, atol=1e-5, rtol=1e-5)


# Attention


def test_grouped_queries_with_copied_heads_are_multi_head_attention() -> None:
    torch.manual_seed(0)
    grouped = MultiHeadAttention(16, 4, 0.0, bias=True, num_kv_heads=2)
    full = MultiHeadAttention(16, 4, 0.0, bias=True)
    full.load_state_dict(grouped.state_dict() | {
        f"{name}_proj.{part}": getattr(grouped.get_submodule(f"{name}_proj"), part).unflatten(0, (2, 4))
        .repeat_interleave(2, dim=0).flatten(0, 1)
        for name in "kv" for part in ("weight", "bias")
    })  # fmt: skip
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    per_head = torch.randn(2, 4, 5, 7).masked_fill(~mask, -torch.inf)
    for m in (None, mask, mask[:, :, :1], mask[:1], per_head, per_head[:1]):
        torch.testing.assert_close(grouped(x, memory, m), full(x, memory, m))
        torch.testing.assert_close(grouped.weights(x, memory, m), full.weights(x, memory, m))


@pytest.mark.parametrize("num_kv_heads", [None, 2, 1])
def test_the_weights_are_what_the_values_are_weighed_by(num_kv_heads: int | None) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4, 0.0, True, num_kv_heads, scaled=False)
    x = torch.randn(2, 5, 16)
    bias = torch.randn(1, 4, 5, 5).masked_fill(~causal_mask(5), -torch.inf)
    turn = RotaryPositions(make_config(), 8, causal=True).rotation(torch.arange(5)[None])
    v = attention.project_key_value(x)[1].repeat_interleave(4 // attention.num_kv_heads, dim=1)
    expected = attention.join_heads(attention.weights(x, x, bias, turn) @ v)
    torch.testing.assert_close(attention(x, x, bias, turn), expected, atol=1e-5, rtol=1e-5)


def test_unscaled_scores_are_larger_by_the_root_of_the_head_size() -> None:
    torch.manual_seed(0)
    scaled, plain = MultiHeadAttention(16, 4, 0.0, False), MultiHeadAttention(16, 4, 0.0, False, scaled=False)
    plain.load_state_dict(scaled.state_dict())
    with torch.no_grad():
        plain.q_proj.weight.div_(math.sqrt(4))
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(plain(x, x), scaled(x, x))


def test_an_unscaled_model_starts_as_the_scaled_one() -> None:
    outputs = []
    for scaled in (True, False):
        torch.manual_seed(0)
        model = Transformer(make_config(scale_attention=scaled), VOCAB, VOCAB).eval()
        outputs.append(model(random_ids(2, 7), random_ids(2, 5, seed=2)))
    torch.testing.assert_close(*outputs)


def test_a_window_by_hand() -> None:
    at = torch.arange(5)[None]
    near = window_mask(at, at, 2)[0, 0].int().tolist()
    assert near == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert itself(2)[0, 0].int().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("architecture", [Transformer, DecoderOnly])
def test_a_window_as_long_as_the_stream_is_none(architecture: type[Transformer] | type[DecoderOnly]) -> None:
    stacks = {} if architecture is Transformer else {"architecture": "decoder_only", "num_encoder_layers": 0}
    outputs = []
    for window in (None, 12, 4):
        torch.manual_seed(0)
        model = architecture(make_config(attention_window=window, **stacks), VOCAB, VOCAB).eval()
        outputs.append(model(random_ids(2, 7), random_ids(2, 5, seed=2)))
    torch.testing.assert_close(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2], atol=1e-3)


# Dropout


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dropout": 0.5}, (True, True, True)),
        ({"dropout": 0.5, "attention_dropout": 0.0}, (True, False, True)),
        ({"dropout": 0.5, "activation_dropout": 0.0}, (True, True, False)),
        ({"dropout": 0.0, "attention_dropout": 0.5}, (False, True, False)),
        ({"dropout": 0.0, "activation_dropout": 0.5}, (False, False, True)),
    ],
)
def test_each_dropout_acts_where_its_key_says(
    changes: dict[str, Any], expected: tuple[bool, bool, bool], activation: str
) -> None:
    """Two passes over the same differ where something is dropped, and nowhere else."""
    torch.manual_seed(0)
    model = Transformer(make_config(activation=activation, **changes), VOCAB, VOCAB).train()
    layer, x = model.get_submodule("decoder.layers.1"), torch.randn(2, 5, 16)
    assert isinstance(layer, DecoderLayer)
    passes: list[tuple[Callable[[], Tensor], ...]] = [
        (
            lambda: layer.self_attn_residual.add(x, x),
            lambda: model.encoder.embedder(random_ids(2, 5), torch.arange(5)[None]),
        ),
        (lambda: layer.self_attn(x, x), lambda: layer.cross_attn(x, x, causal_mask(5))),
        (lambda: layer.feed_forward(x),),
    ]
    for group, drops in zip(passes, expected, strict=True):
        assert [not torch.equal(compute(), compute()) for compute in group] == [drops] * len(group)


def test_attention_without_padding_has_its_own_dropout() -> None:
    """With heads wide enough for it, where weights are dropped in another place of the code."""
    src, tgt = random_ids(3, 7), random_ids(3, 6, seed=2)
    for p, differ in ((0.0, False), (0.5, True)):
        torch.manual_seed(0)
        config = make_config(num_heads=1, dropout=0.0, attention_dropout=p)
        model = Transformer(config, VOCAB, VOCAB).train()
        losses = [batch_loss(model, src, tgt, tgt, 0.1).loss for _ in range(2)]
        assert model.goes_unpadded()
        assert (losses[0] != losses[1]) == differ


# Decoder-only


def test_a_decoder_only_model_equals_torchs_causal_stack_over_the_joined_stream() -> None:
    torch.manual_seed(0)
    config = make_config(architecture="decoder_only", num_encoder_layers=0, positions="learned", activation="gelu")
    model = DecoderOnly(config, VOCAB, VOCAB).eval()
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(16),
        enable_nested_tensor=False,
    )  # fmt: skip
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for ours, layer in zip(model.decoder.layers, theirs.layers, strict=True):
            copy_layer(ours, layer)
        assert theirs.norm is not None
        model.decoder.norm.load_state_dict(theirs.norm.state_dict())
    src, tgt = random_ids(2, 7), random_ids(2, 5, seed=2)
    src[1, 4:] = PAD_ID
    ours = model.hidden_states(src, tgt)
    for row, src_len in enumerate((7, 4)):
        stream = torch.cat((src[row, :src_len], tgt[row]))[None]
        x = model.decoder.embedder(stream, positions_of(stream))
        causal = torch.ones(stream.size(1), stream.size(1), dtype=torch.bool).triu(1)
        torch.testing.assert_close(ours[row], theirs(x, causal)[0, src_len:], atol=1e-5, rtol=1e-5)


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    assert isinstance(ours, EncoderLayer)
    assert isinstance(theirs, nn.TransformerEncoderLayer)
    weights, biases = theirs.self_attn.in_proj_weight.chunk(3), theirs.self_attn.in_proj_bias.chunk(3)
    for name, weight, bias in zip("qkv", weights, biases, strict=True):
        ours.self_attn.get_submodule(f"{name}_proj").load_state_dict({"weight": weight, "bias": bias})
    ours.self_attn.out_proj.load_state_dict(theirs.self_attn.out_proj.state_dict())
    ours.feed_forward.get_submodule("in_proj").load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.get_submodule("out_proj").load_state_dict(theirs.linear2.state_dict())
    ours.self_attn_residual.norm.load_state_dict(theirs.norm1.state_dict())
    ours.feed_forward_residual.norm.load_state_dict(theirs.norm2.state_dict())


def test_the_loss_of_a_decoder_only_model_is_on_the_target_alone() -> None:
    torch.manual_seed(0)
    config = make_config(architecture="decoder_only", num_encoder_layers=0)
    model = DecoderOnly(config, VOCAB, VOCAB).eval()
    src, tgt_in, tgt_out = random_ids(2, 7), random_ids(2, 5, seed=2), random_ids(2, 5, seed=3)
    tgt_out[1, 3:] = tgt_in[1, 3:] = PAD_ID
    loss = batch_loss(model, src, tgt_in, tgt_out, 0.1)
    real = tgt_out != PAD_ID
    expected = cross_entropy_sums(model(src, tgt_in)[real], tgt_out[real], 0.1)
    torch.testing.assert_close(loss.loss, expected.loss)
    assert int(real.sum()) == 8


# What the fused kernel is told


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"num_kv_heads": 4}, True),
        ({"num_kv_heads": 2}, False),
        ({"attention_window": 3}, False),
        *(({"positions": name}, option.make.bias is Positions.bias) for name, option in POSITIONS.items()),
    ],
)
def test_a_mask_that_is_causal_and_no_more_is_told_and_not_given(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_told: bool
) -> None:
    """In the decoder's self-attention alone, and it gives what the mask gives. A GPU has another kernel for it."""
    calls: list[tuple[bool, bool]] = []
    fused = F.scaled_dot_product_attention

    def watched(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, is_causal: bool = False, **more):
        calls.append((mask is None, is_causal))
        return fused(q, k, v, mask, dropout, is_causal, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    torch.manual_seed(0)
    model = Transformer(make_config(**changes), VOCAB, VOCAB).eval()
    src, tgt = random_ids(3, 7), random_ids(3, 6, seed=2)
    tgt[0, 4:] = PAD_ID
    told = model.hidden_states(src, tgt)
    assert calls == [(False, False)] * 2 + [(is_told, is_told), (False, False)] * 2
    monkeypatch.setattr(
        LayerContext, "is_causal", property(lambda self: False, lambda self, value: None), raising=False
    )
    calls.clear()
    torch.testing.assert_close(told, model.hidden_states(src, tgt), atol=1e-6, rtol=0)
    assert calls == [(False, False)] * 6
