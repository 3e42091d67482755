"""Positions of tokens: added to the embedding, turned into queries and keys, or added to the scores.

The argument `at` holds positions: (1, length) where all rows have the same, else (batch, length).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.option import Option
from transformer_mt.model.parts.attention import unrotated

NUM_BUCKETS, LARGEST_DISTANCE = 32, 128  # of the relative bias, as in T5
ROTARY_BASE = 10000.0


class Positions(nn.Module):
    """The base of every kind, and the kind `none`. Each other kind overrides `forward`, `rotation` or `bias`."""

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__()

    @property
    def add_to_scores(self) -> bool:
        """Whether `bias` does something: then attention needs a mask of floats, which not every fast path takes."""
        return type(self).bias is not Positions.bias

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        """Embeddings (batch, length, d_model) with what is added to them."""
        return x

    def rotation(self, at: Tensor) -> Callable[[Tensor], Tensor]:
        """The function that self-attention applies to queries and keys (batch, num_heads, length, head_dim)."""
        return unrotated

    def bias(self, mask: Tensor | None, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        """The mask of self-attention (see `attention.masked`), together with a bias of the scores, if there is one."""
        return mask


def sinusoidal_table(max_len: int, d_model: int) -> Tensor:
    """PE[pos, 2i] = sin(pos / 10000^(2i/d)), PE[pos, 2i+1] = cos of the same. -> (max_len, d_model).

    Vaswani et al. 2017, section 3.5. Worked out in float64: at long positions float32 loses the angle.
    """
    angle = _angles(max_len, d_model)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).to(torch.float32)


def _angles(max_len: int, size: int) -> Tensor:
    """pos / 10000^(2i/size) -> (max_len, size / 2), float64."""
    position = torch.arange(max_len, dtype=torch.float64)[:, None]
    even = torch.arange(0, size, 2, dtype=torch.float64)
    return position * torch.exp(even * (-math.log(ROTARY_BASE) / size))


class SinusoidalPositions(Positions):
    """Fixed sines and cosines: no parameters, nothing saved."""

    table: Tensor

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__(config, max_len, causal)
        self.register_buffer("table", sinusoidal_table(max_len, config.d_model), persistent=False)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.table[at]


class LearnedPositions(Positions):
    """One trained vector a position."""

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__(config, max_len, causal)
        self.embedding = nn.Embedding(max_len, config.d_model)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.embedding(at)


@dataclass(frozen=True)
class Rotation:
    """Turns each pair (i, i + head_dim / 2) of a head by its angle.

    cos and sin (batch or 1, 1, length, head_dim / 2).
    """

    cos: Tensor
    sin: Tensor

    def __call__(self, heads: Tensor) -> Tensor:
        a, b = heads.float().chunk(2, dim=-1)
        return torch.cat((a * self.cos - b * self.sin, a * self.sin + b * self.cos), dim=-1).to(heads.dtype)


class RotaryPositions(Positions):
    """Su et al. 2021: queries and keys are turned by angles that grow with the position, so that a score depends on the
    distance alone.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__(config, max_len, causal)
        angles = _angles(max_len, config.d_model // config.num_heads)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def rotation(self, at: Tensor) -> Rotation:
        return Rotation(self.cos[at][:, None], self.sin[at][:, None])


def relative_buckets(distance: Tensor, causal: bool) -> Tensor:
    """T5's buckets of key position - query position, any shape (Raffel et al. 2020, section 2.1).

    Half of the buckets of a direction hold one distance each. The others grow with the logarithm up to
    `LARGEST_DISTANCE`, and farther keys share the last. With `causal` all buckets look back, else half each way.
    """
    if causal:
        first, num_buckets, distance = 0, NUM_BUCKETS, -distance.clamp(max=0)
    else:
        num_buckets = NUM_BUCKETS // 2
        first, distance = (distance > 0).long() * num_buckets, distance.abs()
    exact = num_buckets // 2
    share = torch.log(distance.clamp(min=1).double() / exact) / math.log(LARGEST_DISTANCE / exact)
    far = (exact + share * (num_buckets - exact)).long().clamp(max=num_buckets - 1)
    return first + torch.where(distance < exact, distance, far)


class RelativeBias(Positions):
    """One trained number a head and bucket of distance, added to the scores: T5's. A table per stack."""

    buckets: Tensor

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__(config, max_len, causal)
        # A table, since logarithms in float64 would cost time in every pass, and Apple's GPUs have no float64.
        distances = torch.arange(-LARGEST_DISTANCE, LARGEST_DISTANCE + 1)
        self.register_buffer("buckets", relative_buckets(distances, causal), persistent=False)
        self.embedding = nn.Embedding(NUM_BUCKETS, config.num_heads)

    def bias(self, mask: Tensor | None, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (key_at[:, None, :] - query_at[:, :, None]).clamp(-LARGEST_DISTANCE, LARGEST_DISTANCE)
        buckets = self.buckets[distance + LARGEST_DISTANCE]
        bias = self.embedding(buckets).permute(0, 3, 1, 2)  # (batch or 1, num_heads, query_len, key_len)
        # CUDA's kernel takes no bias whose keys are not side by side in memory; masked_fill's copy has them so.
        return bias.contiguous() if mask is None else bias.masked_fill(~mask, -torch.inf)


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8h/n) for the heads h = 1 to n, where n is a power of two. For other n: the slopes of the largest power below
    n, then every second slope of twice that power, from the first on (Press et al. 2022, section 3 and their code).
    """
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    return slopes + [2 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]


class AlibiPositions(Positions):
    """Press et al. 2022: each head takes its slope times the distance from its scores. Nothing is trained. A decoder
    looks back alone; in an encoder the distance counts both ways alike.
    """

    slopes: Tensor

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__(config, max_len, causal)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(config.num_heads)), persistent=False)

    def bias(self, mask: Tensor | None, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (key_at[:, None, None, :] - query_at[:, None, :, None]).abs()
        bias = distance * -self.slopes[:, None, None]  # (batch or 1, num_heads, query_len, key_len)
        return bias if mask is None else bias.masked_fill(~mask, -torch.inf)


# Kinds that only add to the embedding need no key of CTranslate2: what they add is exported as a table.
POSITIONS: dict[str, Option[type[Positions]]] = {
    "sinusoidal": Option(
        SinusoidalPositions,
        {},
        "sines and cosines of the position are added to the embedding",
        huggingface={},  # with the sines before the cosines, which the export sees to
    ),
    "learned": Option(LearnedPositions, {}, "a trained vector of the position is added to the embedding"),
    "rotary": Option(
        RotaryPositions,
        {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": ROTARY_BASE},  # 0: the whole head
        "nothing is added to the embedding; queries and keys are turned, in every self-attention",
    ),
    "relative_bias": Option(
        RelativeBias,
        {"relative_attention_bias": True},
        "nothing is added to the embedding; self-attention adds the distance to its scores",
    ),
    "alibi": Option(
        AlibiPositions,
        None,  # CTranslate2 has it in decoders only, and its decoder-only models were never compared with ours
        "nothing is added to the embedding; self-attention takes each head's slope times the distance from its scores",
    ),
    "none": Option(Positions, {}, "the model is not told where a token stands"),
}
