"""Layers that take the place of a model's own for decoding, with weights laid out once, in fewer bits where asked."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.find_kernels import kernels_for
from transformer_mt.model.cache import LANES, round_up
from transformer_mt.model.layers import DecoderLayer, PostNormResidual
from transformer_mt.model.parts.attention import MultiHeadAttention, stacked
from transformer_mt.model.unpadded import BlockDiagonal

LARGEST_INT8, LARGEST_INT7 = 127, 63
SMALLEST = 1e-30  # taken for the largest number of a row where that is smaller: 127 divided by it is finite


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
    """`nn.Linear` whose product has factors of 16 bits, sums in fp32, and one rounding."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        self.weight = nn.Buffer(weight.to(dtype))
        self.bias = nn.Buffer(bias.to(dtype)) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), fp32."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).float()


class Int8Linear(nn.Module):
    """`nn.Linear` whose product has factors that are 8-bit integers, and exact sums.

    Each row of the weight has a scale, found here, and each row of the input another, found in each call (Dettmers et
    al. 2022, section 2, without their split of outliers). So the rounding of a row does not depend on its batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        rounded, scale = rounded_rows(weight.float())
        # The strides of a single column do not tell the order, and torch's product assumes the wrong one.
        by_column = rounded.t() if rounded.size(1) > 1 else rounded.t().clone(memory_format=torch.contiguous_format)
        self.weight = nn.Buffer(by_column)
        self.scale = nn.Buffer(scale.squeeze(1))
        self.bias = nn.Buffer(bias.clone()) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        rows, step = rounded_rows(x.reshape(-1, x.size(-1)))
        sums = torch.ops.aten._int_mm(rows, self.weight)
        # In place: another matrix of the vocabulary's width would not fit into the cache.
        y = torch.mul(sums, self.scale, out=sums.view(torch.float32))
        y = y.mul_(step) if self.bias is None else torch.addcmul(self.bias, y, step, out=y)
        return y.view(*x.shape[:-1], self.weight.size(1))


class PairedInt8Linear(nn.Module):
    """`Int8Linear` for CPUs that can only add the products of neighbours in 16 bits (AVX2), by FBGEMM's kernels.

    Two products of inputs of 8 bits fit into 16 where weights have 7, so that all sums are exact here too.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        rounded, scale = rounded_rows(weight.float(), LARGEST_INT7)
        self.weight = _for_fbgemm(rounded, scale.squeeze(1))
        self.num_out = len(weight)
        self.bias = nn.Buffer(bias.clone()) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        rows = x.reshape(-1, x.size(-1))
        largest = rows.abs().amax(dim=1, keepdim=True).clamp_min_(SMALLEST)
        y = self.of_stretched(rows * (LARGEST_INT8 / largest)).mul_(largest / LARGEST_INT8)
        return (y if self.bias is None else y.add_(self.bias)).view(*x.shape[:-1], self.num_out)

    def of_stretched(self, rows: Tensor) -> Tensor:
        """The product of rows (n, in) from -127 to 127, which are rounded, and the weight -> (n, out)."""
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        return product(rows, 1.0, LARGEST_INT8 + 1, self.weight)


def _for_fbgemm(rounded: Tensor, scale: Tensor) -> Any:
    """Integers (out, in) and the scale of each row, laid out for FBGEMM. torch says that it will drop such tensors."""
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(rounded), dtype=torch.long)
        make = torch._make_per_channel_quantized_tensor  # pyright: ignore[reportPrivateImportUsage]
        quantized = make(rounded, scale.double(), zeros, 0)
    try:
        torch.backends.quantized.engine = "fbgemm"
        return torch.ops.quantized.linear_prepack(quantized, None)
    finally:
        torch.backends.quantized.engine = engine


@functools.cache
def pairs_work() -> bool:
    """Whether this torch has what `PairedInt8Linear` asks of it: on x86, and for how long is not known."""
    try:
        PairedInt8Linear(torch.ones(2, 2), None)(torch.ones(1, 2))
    except (AttributeError, RuntimeError):
        return False
    return True


def rounded_rows(rows: Tensor, most: int = LARGEST_INT8) -> tuple[Tensor, Tensor]:
    """rows (n, size) -> integers from -most to most, and the step of each row (n, 1), by which they are multiplied."""
    largest = rows.abs().amax(dim=1, keepdim=True).clamp_min_(SMALLEST)
    return (rows * (most / largest)).round_().to(torch.int8), largest / most


class StepAttention(MultiHeadAttention):
    """An attention that takes one pass over the keys of a step, in a search that takes compiled passes."""

    def attend_to_slots(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        kernels = kernels_for(q)
        if kernels is None or not kernels.can_attend(q, k, v, bias):
            return super().attend_to_slots(q, k, v, bias)
        return self.out_proj(kernels.attend(q, k, v, bias, self.scale).flatten(2))


class PackedSelfAttention(StepAttention):
    """A self-attention whose three projections are one product, and whose keys fill a CPU's lanes."""

    def __init__(self, attention: MultiHeadAttention, packing: "Packing") -> None:
        nn.Module.__init__(self)
        self.__dict__.update({**attention.__dict__, "_modules": {}})  # its sizes without its weights
        self.joint_proj = packing.linear(*stacked([attention.q_proj, attention.k_proj, attention.v_proj]))
        self.add_module("out_proj", packing.linear(attention.out_proj.weight, attention.out_proj.bias))

    def project(self, query: Tensor, key_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert query is key_value, "a self-attention"
        kv_size = self.num_kv_heads * self.head_dim
        parts = self.joint_proj(query).split([self.num_heads * self.head_dim, kv_size, kv_size], dim=-1)
        q, k, v = (self._split_heads(part) for part in parts)
        return q, k, v

    def project_query(self, x: Tensor) -> Tensor:
        return self.project(x, x)[0]

    def project_key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.project(x, x)[1:]

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | BlockDiagonal | None,
        is_causal: bool = False,
        biased: bool = True,
    ) -> Tensor:
        """As `MultiHeadAttention.attend` has it, with the keys filled up to whole lanes where a few are missing."""
        # torch's fused kernel takes up to twice as long for a few keys less than a multiple of `LANES`.
        surplus = round_up(k.size(2)) - k.size(2)
        if isinstance(mask, Tensor) and 0 < surplus < LANES // 2:
            k, v = (F.pad(heads, (0, 0, 0, surplus)) for heads in (k, v))
            mask = F.pad(mask, (0, surplus), value=False if mask.dtype == torch.bool else -torch.inf)
        return super().attend(q, k, v, mask, is_causal, biased)


class PackedCrossAttention(StepAttention):
    """A cross-attention whose keys and values are one product."""

    def __init__(self, attention: MultiHeadAttention, packing: "Packing") -> None:
        nn.Module.__init__(self)
        self.__dict__.update({**attention.__dict__, "_modules": {}})
        self.joint_proj = packing.linear(*stacked([attention.k_proj, attention.v_proj]))
        self.add_module("q_proj", packing.linear(attention.q_proj.weight, attention.q_proj.bias))
        self.add_module("out_proj", packing.linear(attention.out_proj.weight, attention.out_proj.bias))

    def project_key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (self._split_heads(part) for part in self.joint_proj(x).chunk(2, dim=-1))
        return k, v


@dataclass(frozen=True)
class Packing:
    """The layers for one precision: for a linear map, for the attentions, and, if it is more than two linear maps, for
    a feed-forward with relu; for the end of a post-norm sublayer, for the linear map that makes logits, and for a
    decoder layer, given with its packed twin, where they are others.
    """

    linear: Callable[[Tensor, Tensor | None], nn.Module]
    self_attn: Callable[[MultiHeadAttention, "Packing"], nn.Module] = PackedSelfAttention
    cross_attn: Callable[[MultiHeadAttention, "Packing"], nn.Module] = PackedCrossAttention
    relu_feed_forward: Callable[[nn.Linear, nn.Linear], nn.Module] | None = None
    post_norm: Callable[[PostNormResidual], nn.Module] | None = None
    output: Callable[[Tensor, Tensor | None], nn.Module] | None = None
    decoder_layer: Callable[[DecoderLayer, DecoderLayer], nn.Module] | None = None
