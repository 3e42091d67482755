"""A model's weights laid out once for decoding: in the order that a CPU's kernels read, in fewer bits where asked.

Every product of a decoder's step is small, and its weight is read whole for each. All that is not a product of weights
(norms, attention's scores, residual sums) stays in fp32.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.decoding.candidates import LargestToken, largest_token
from transformer_mt.machine.device import DTYPES
from transformer_mt.machine.numba_modules import numba_module
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.cache import LANES, round_up
from transformer_mt.model.feed_forward import ReluFeedForward
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.unpadded import BlockDiagonal

LARGEST_INT8 = 127
SMALLEST = 1e-30  # of a row's largest number: 127 divided by it is finite


class PackedLinear(nn.Module):
    """`nn.Linear` with its weight transposed in memory, which is a tenth faster on few rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        self.weight = nn.Buffer(weight.t().contiguous())
        self.bias = nn.Buffer(bias.clone()) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        rows = x.reshape(-1, x.size(-1))
        y = rows @ self.weight if self.bias is None else torch.addmm(self.bias, rows, self.weight)
        return y.view(*x.shape[:-1], self.weight.size(1))


class HalfLinear(nn.Module):
    """`nn.Linear` whose product is of numbers of 16 bits, summed in fp32 and rounded once."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        self.weight = nn.Buffer(weight.to(dtype))
        self.bias = nn.Buffer(bias.to(dtype)) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), fp32."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).float()


class Int8Linear(nn.Module):
    """`nn.Linear` whose product is of 8-bit integers, summed exactly.

    A row of the weight has one scale, found here; a row of the input has one, found in each call (Dettmers et al. 2022,
    section 2, without their split of outliers). So how a row is rounded does not depend on the others of its batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        rounded, scale = rounded_rows(weight.float())
        # Of a single column, strides say nothing of the order, and torch's product takes the wrong one for granted.
        by_column = rounded.t() if rounded.size(1) > 1 else rounded.t().clone(memory_format=torch.contiguous_format)
        self.weight = nn.Buffer(by_column)
        self.scale = nn.Buffer(scale.squeeze(1))
        self.bias = nn.Buffer(bias.clone()) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        rows, step = rounded_rows(x.reshape(-1, x.size(-1)))
        sums = torch.ops.aten._int_mm(rows, self.weight)
        # Into their own memory: more matrices of the vocabulary's width would fall out of the cache.
        y = torch.mul(sums, self.scale, out=sums.view(torch.float32))
        y = y.mul_(step) if self.bias is None else torch.addcmul(self.bias, y, step, out=y)
        return y.view(*x.shape[:-1], self.weight.size(1))


def rounded_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """rows (n, size) -> integers from -127 to 127, and what each row of them is multiplied by (n, 1)."""
    largest = rows.abs().amax(dim=1, keepdim=True).clamp_min_(SMALLEST)
    return (rows * (LARGEST_INT8 / largest)).round_().to(torch.int8), largest / LARGEST_INT8


class PackedSelfAttention(MultiHeadAttention):
    """A self-attention whose three projections are one product, and whose keys fill a CPU's lanes."""

    def __init__(self, attention: MultiHeadAttention, packing: "Packing") -> None:
        nn.Module.__init__(self)
        self.__dict__.update({**attention.__dict__, "_modules": {}})  # its sizes, none of its weights
        self.joint_proj = packing.linear(*_stacked([attention.q_proj, attention.k_proj, attention.v_proj]))
        self.add_module("out_proj", packing.linear(attention.out_proj.weight, attention.out_proj.bias))

    def project(self, query: Tensor, key_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert query is key_value, "a self-attention"
        kv_size = self.num_kv_heads * self.head_dim
        parts = self.joint_proj(query).split([self.num_heads * self.head_dim, kv_size, kv_size], dim=-1)
        q, k, v = (self._split_heads(part) for part in parts)
        return q, k, v

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | BlockDiagonal | None, is_causal: bool = False
    ) -> Tensor:
        # torch's fused kernel takes up to twice as long for a few keys less than a multiple of `LANES`.
        surplus = round_up(k.size(2)) - k.size(2)
        if isinstance(mask, Tensor) and 0 < surplus < LANES // 2:
            k, v = (F.pad(heads, (0, 0, 0, surplus)) for heads in (k, v))
            mask = F.pad(mask, (0, surplus), value=False if mask.dtype == torch.bool else -torch.inf)
        return super().attend(q, k, v, mask, is_causal)


class PackedCrossAttention(MultiHeadAttention):
    """A cross-attention whose keys and values are one product."""

    def __init__(self, attention: MultiHeadAttention, packing: "Packing") -> None:
        nn.Module.__init__(self)
        self.__dict__.update({**attention.__dict__, "_modules": {}})
        self.joint_proj = packing.linear(*_stacked([attention.k_proj, attention.v_proj]))
        self.add_module("q_proj", packing.linear(attention.q_proj.weight, attention.q_proj.bias))
        self.add_module("out_proj", packing.linear(attention.out_proj.weight, attention.out_proj.bias))

    def project_key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (self._split_heads(part) for part in self.joint_proj(x).chunk(2, dim=-1))
        return k, v


def _stacked(linears: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return torch.cat([linear.weight for linear in linears]), bias


@dataclass(frozen=True)
class Packing:
    """What takes the place of a linear map and of attentions; of a feed-forward with relu, where that is more than two
    linear maps; and how greedy search finds its tokens.
    """

    linear: Callable[[Tensor, Tensor | None], nn.Module]
    self_attn: Callable[[MultiHeadAttention, "Packing"], nn.Module] = PackedSelfAttention
    cross_attn: Callable[[MultiHeadAttention, "Packing"], nn.Module] = PackedCrossAttention
    relu_feed_forward: Callable[[nn.Linear, nn.Linear], nn.Module] | None = None
    largest_token: LargestToken = largest_token


PACKINGS = {
    "fp32": Packing(PackedLinear),
    **{name: Packing(partial(HalfLinear, dtype=dtype)) for name, dtype in DTYPES.items()},
    "int8": Packing(Int8Linear),
}


def find_packing(precision: str) -> Packing:
    """The packing of `PACKINGS`, or where numba is installed a faster one."""
    compiled = numba_module("transformer_mt.decoding.compiled") if precision == "int8" else None
    return PACKINGS[precision] if compiled is None else compiled.PACKING


@torch.no_grad()
def packed(model: TranslationModel, precision: str) -> TranslationModel:
    """A model that decodes as this one does, with packed weights of its own; what is not packed, the two share.

    precision: one of `PACKINGS`, int8 on a CPU alone. It is for a search, where no gradient is asked for. With numba a
    search in int8 keeps keys and values of 8 bits, without it of 32.
    """
    return cast(TranslationModel, _pack(model, find_packing(precision)).eval())


def _pack(module: nn.Module, packing: Packing) -> nn.Module:
    """A module with packed children in its place; no tensor is copied but theirs."""
    twin = copy.copy(module)
    twin._compiled_call_impl = None  # of a training, which computes with the weights of the module itself
    twin._modules = {name: child and _packed_child(name, child, packing) for name, child in module._modules.items()}
    return twin


def _packed_child(name: str, child: nn.Module, packing: Packing) -> nn.Module:
    if isinstance(child, MultiHeadAttention):
        return (packing.self_attn if name == "self_attn" else packing.cross_attn)(child, packing)
    if isinstance(child, ReluFeedForward) and packing.relu_feed_forward:
        return packing.relu_feed_forward(child.in_proj, child.out_proj)
    if isinstance(child, nn.Linear):
        # Fewer bits would send tokens to other experts.
        return (PackedLinear if name == "router" else packing.linear)(child.weight, child.bias)
    return _pack(child, packing)
