"""Every kind of positions against its formula, and cases worked out by hand."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from plain_model import VOCAB, random_ids
from small_models import make_config
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_mt.model.masks import causal_mask
from transformer_mt.model.parts.positions import (
    POSITIONS,
    Positions,
    RelativeBias,
    RotaryPositions,
    alibi_slopes,
    relative_buckets,
)
from transformer_mt.model.transformer import Transformer


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
