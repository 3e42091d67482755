"""Queries, keys, values and masks for training's attention on a CPU."""

import torch
from torch import Tensor

from transformer_mt.model.masks import causal_mask

BATCH, HEADS = 3, 2
KINDS = ["none", "causal", "padding", "per query", "bias"]


def inputs(
    num_queries: int, num_keys: int, size: int, dtype: torch.dtype = torch.float32, heads_first: bool = False
) -> list[Tensor]:
    """q, k and v with gradients; in memory positions come first, as the projections leave them, or heads."""
    torch.manual_seed(0)
    shapes = [(BATCH, n, HEADS, size) for n in (num_queries, num_keys, num_keys)]
    tensors = [torch.randn(shape).to(dtype).transpose(1, 2) for shape in shapes]
    return [(x.contiguous() if heads_first else x).requires_grad_() for x in tensors]


def mask_of(
    kind: str, num_queries: int, num_keys: int, dtype: torch.dtype = torch.float32, trained: bool = False
) -> Tensor | None:
    """A mask of one kind, a float one perhaps `trained`."""
    torch.manual_seed(1)
    if kind == "none":
        return None
    if kind == "causal":
        return causal_mask(max(num_queries, num_keys))[:, :, -num_queries:, :num_keys]
    if kind == "padding":
        return torch.arange(num_keys)[None, None, None] < torch.tensor([1, num_keys, 2])[:, None, None, None]
    if kind == "per query":
        return (torch.rand(BATCH, 1, num_queries, num_keys) < 0.5) | (torch.arange(num_keys) == 0)
    bias = torch.randn(1, HEADS, num_queries, num_keys, dtype=dtype)
    return bias.masked_fill(torch.arange(num_keys) == 1, -torch.inf).requires_grad_(trained)
