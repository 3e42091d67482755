"""Where a token stands: added to its embedding, rotated into queries and keys, or added to the scores.

`at` are positions, (1, length) where they are every row's, else (batch, length).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.config.schema import ModelConfig
from transformer_mt.model.attention import unrotated

NUM_BUCKETS, LARGEST_DISTANCE = 32, 128  # of the relative bias, as in T5
ROTARY_BASE = 10000.0


class Positions(nn.Module):
    """No positions, and what every kind is: three ways to act, two of which it leaves alone."""

    add_to_scores = False  # whether `bias` does something

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__()

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        """Embeddings (batch, length, d_model) with what is added to them."""
        return x

    def rotation(self, at: Tensor) -> Callable[[Tensor], Tensor]:
        """What self-attention applies to queries and keys (batch, num_heads, length, head_dim) at these positions."""
        return unrotated

    def bias(self, mask: Tensor | None, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        """The self-attention mask (see `attention.masked`), with what is added to the scores."""
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

    Half of the buckets of a direction are one distance each, the other half grow with the logarithm up to
    `LARGEST_DISTANCE`, and what is farther shares the last. Causal: all buckets look back. Else half look each way.
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

    add_to_scores = True
    buckets: Tensor

    def __init__(self, config: ModelConfig, max_len: int, causal: bool) -> None:
        super().__init__(config, max_len, causal)
        # Looked up and not worked out in every pass: logarithms in float64 cost time, and Apple's GPUs have none.
        distances = torch.arange(-LARGEST_DISTANCE, LARGEST_DISTANCE + 1)
        self.register_buffer("buckets", relative_buckets(distances, causal), persistent=False)
        self.embedding = nn.Embedding(NUM_BUCKETS, config.num_heads)

    def bias(self, mask: Tensor | None, query_at: Tensor, key_at: Tensor) -> Tensor:
        distance = (key_at[:, None, :] - query_at[:, :, None]).clamp(-LARGEST_DISTANCE, LARGEST_DISTANCE)
        buckets = self.buckets[distance + LARGEST_DISTANCE]
        bias = self.embedding(buckets).permute(0, 3, 1, 2)  # (batch or 1, num_heads, query_len, key_len)
        # CUDA's kernel takes no bias whose keys are not side by side in memory; masked_fill's copy has them so.
        return bias.contiguous() if mask is None else bias.masked_fill(~mask, -torch.inf)


POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "rotary": RotaryPositions,
    "relative_bias": RelativeBias,
    "none": Positions,
}
