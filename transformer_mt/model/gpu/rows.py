"""How the kernels that pass over many rows share them out among programs, and how the sums of programs are added up."""

import functools
from typing import Any

import torch
from torch import Tensor

# The fastest of those that were tried on an H100.
_TILE, _A_WARP = 1024, 512  # numbers that a program holds at a time, and how many of a row a warp has at most
_PROGRAMS = 4  # a processor of the GPU has so many programs at a time, each of which sums over many tiles
STAGES = 3  # tiles that such a program has under way: one that it computes, and those that it reads ahead
_COLUMNS, _HEIGHT, _WARPS = 8, 256, 8  # the tile of a program that sums columns


def _kernels() -> Any:
    """`row_kernels.py`, which imports Triton."""
    from transformer_mt.model.gpu import row_kernels

    return row_kernels


def tile_of(size: int, widest: int | None = None) -> dict[str, int]:
    """The tile of a program over rows of this size: whole rows, or `widest` numbers of each."""
    width = max(32, 1 << (size - 1).bit_length())
    width = width if widest is None else min(width, widest)
    return {"width": width, "height": max(1, _TILE // width), "num_warps": max(2, width // _A_WARP)}


@functools.cache
def num_programs(device: torch.device) -> int:
    """Programs that all run at a time there."""
    if device.type != "cuda":
        return _PROGRAMS
    return _PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count


def column_sums(x: Tensor) -> Tensor:
    """x (num_rows, size) in float32 -> (size,): the sums over the rows, always in the same order. torch's takes two to
    three times as long for so few rows.
    """
    size = x.size(1)
    out = x.new_empty(size)
    grid = (-(-size // _COLUMNS),)
    _kernels().column_sums[grid](x, out, len(x), size, width=_COLUMNS, height=_HEIGHT, num_warps=_WARPS)
    return out
