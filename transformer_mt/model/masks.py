"""Attention masks: boolean, True = may attend, broadcastable to (batch, num_heads, query_len, key_len).

`torch.nn.Transformer` means the opposite by the same tensors.
"""

import torch
from torch import Tensor

from transformer_mt.config.special_ids import PAD_ID


def is_real(ids: Tensor) -> Tensor:
    """Where there is no padding. ids (batch, length), or patches (batch, length, pixels), of which padding has PAD_ID
    in every pixel and others in none -> (batch, length).
    """
    return (ids if ids.dim() == 2 else ids[:, :, 0]) != PAD_ID


def padding_mask(ids: Tensor) -> Tensor:
    """Keys that are not padding. ids as in `is_real` -> (batch, 1, 1, key_len)."""
    return is_real(ids)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Position i may attend to j <= i. -> (1, 1, length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def window_mask(query_at: Tensor, key_at: Tensor, window: int) -> Tensor:
    """Positions i and j with abs(i - j) < window. (batch or 1, length) each -> (batch or 1, 1, query_len, key_len)."""
    return ((query_at[:, None, :, None] - key_at[:, None, None, :]).abs()) < window


def itself(length: int, device: torch.device | None = None) -> Tensor:
    """Position i may attend to i: for padding, which would see nothing else through a window. -> as `causal_mask`."""
    return torch.eye(length, dtype=torch.bool, device=device)[None, None]


def as_bias(mask: Tensor) -> Tensor:
    """What is added to the scores: 0 and -inf for a boolean mask; a float one is that already."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -torch.inf)
