"""Weights as the passes over panels read them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.packed_layers import Int8Linear, PackedLinear

Map = PackedLinear | Int8Linear  # both have a weight (in, out), and perhaps a bias (out,)

AT_ONCE = 4  # integers of 8 bits that one instruction multiplies and adds, for each lane
ZERO_POINT = 128  # added to the integers of a row, since the instruction takes no sign there


@dataclass(frozen=True)
class Panels:
    """Linear maps and norms: see `layer_parts.py` and `panel_lanes.py`. `integers` is empty in float32."""

    numbers: NDArray[np.float32]
    integers: NDArray[np.int8]
    places: NDArray[np.int64]
    norms: NDArray[np.int64]

    @classmethod
    def of(cls, maps: Sequence[Map], norms: Sequence[nn.LayerNorm], columns: int) -> "Panels":
        """`columns` are those of a panel; the last panel of a map is filled up with zeros. All maps are of one kind."""
        numbers, integers = _Row(torch.float32), _Row(torch.int8)
        places, of_norms = [], []
        for one in maps:
            size, out_size = one.weight.shape
            weight, scale = _padded(one.weight.t(), columns), torch.empty(0)
            if isinstance(one, Int8Linear):
                scale = _padded(one.scale, columns)
                at = integers.put(_int8_panels(weight, columns))
            else:
                at = numbers.put(weight.view(-1, columns, size).transpose(1, 2))
            bias = _padded(_bias(one.bias, out_size), columns)
            places.append([size, out_size, at, numbers.put(bias), numbers.put(scale)])
        for norm in norms:
            of_norms.append([numbers.put(norm.weight), numbers.put(_bias(norm.bias, len(norm.weight)))])
        tables = np.array(places, np.int64), np.array(of_norms, np.int64).reshape(-1, 2)
        return cls(numbers.whole().numpy(), integers.whole().numpy(), *tables)


class _Row:
    """Numbers one behind the other."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._parts = [torch.empty(0, dtype=dtype)]
        self._length = 0

    def put(self, numbers: Tensor) -> int:
        """Where they begin."""
        self._parts.append(numbers.detach().to(self._parts[0].dtype).flatten())
        self._length += numbers.numel()
        return self._length - numbers.numel()

    def whole(self) -> Tensor:
        return torch.cat(self._parts)


def _bias(bias: Tensor | None, size: int) -> Tensor:
    return torch.zeros(size) if bias is None else bias


def _padded(rows: Tensor, columns: int) -> Tensor:
    """rows (out, …) with zeros up to whole panels."""
    return F.pad(rows.contiguous(), (0, 0) * (rows.dim() - 1) + (0, -len(rows) % columns))


def _int8_panels(rounded: Tensor, columns: int) -> Tensor:
    """rounded (out, in) -> the panels, and behind each what takes away what `ZERO_POINT` adds to its sums."""
    panels = rounded.view(-1, columns, rounded.size(1) // AT_ONCE, AT_ONCE).transpose(1, 2).flatten(1)
    surplus = (-ZERO_POINT * rounded.sum(dim=1)).to(torch.int32).view(-1, columns)
    return torch.cat([panels, surplus.view(torch.int8)], dim=1)
