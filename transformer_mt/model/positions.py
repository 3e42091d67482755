"""Where a token stands, added to its embedding."""

import math

import torch
from torch import Tensor, nn


def sinusoidal_table(max_len: int, d_model: int) -> Tensor:
    """PE[pos, 2i] = sin(pos / 10000^(2i/d)), PE[pos, 2i+1] = cos of the same. -> (max_len, d_model).

    Vaswani et al. 2017, section 3.5. Worked out in float64: at long positions float32 loses the angle.
    """
    position = torch.arange(max_len, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position * torch.exp(even * (-math.log(10000.0) / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).to(torch.float32)


class SinusoidalPositions(nn.Module):
    """Fixed sines and cosines: no parameters, nothing saved."""

    table: Tensor

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_len, d_model), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model), its first token at position `start` -> the same shape, positions added."""
        return x + self.table[start : start + x.size(1)]


class LearnedPositions(nn.Module):
    """One trained vector a position."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model), its first token at position `start` -> the same shape, positions added."""
        return x + self.embedding.weight[start : start + x.size(1)]


POSITIONS = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions}
