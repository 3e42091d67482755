"""Heads of an attention in the form of engines that know none that are shared."""

from torch import Tensor


def repeat_heads(rows: Tensor, times: int, head_dim: int) -> Tensor:
    """(heads * head_dim, ...) -> (heads * times * head_dim, ...), with the copies of a head side by side."""
    return rows.unflatten(0, (-1, head_dim)).repeat_interleave(times, dim=0).flatten(0, 1)
