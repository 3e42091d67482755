"""The layers of `packed_layers.py` for int8, where numba works."""

import torch
from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.int8_kernels import (
    Steps,
    attend,
    pack_heads,
    round_rows,
    scale_,
    scale_relu_round,
    step_rows_,
    stretch_rows,
)
from transformer_mt.decoding.fast_layers.packed_layers import (
    Int8Linear,
    PackedCrossAttention,
    PackedSelfAttention,
    Packing,
    PairedInt8Linear,
)
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.layer_context import LayerContext


class CompiledInt8Linear(Int8Linear):
    """`Int8Linear` that rounds in one pass and scales in another."""

    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__(weight, torch.zeros(len(weight)) if bias is None else bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        y = self.of_rounded(*round_rows(x.reshape(-1, x.size(-1))))
        return y.view(*x.shape[:-1], self.weight.size(1))

    def of_rounded(self, rows: Tensor, steps: Steps) -> Tensor:
        """The result for integers (n, in) and the step of each row (n,) -> (n, out)."""
        return scale_(torch.ops.aten._int_mm(rows, self.weight), steps, self.scale, self.bias)


class CompiledReluFeedForward(nn.Module):
    """`ReluFeedForward` with one pass between its products, from the sums of one to the integers of the next."""

    def __init__(self, in_proj: nn.Linear, out_proj: nn.Linear) -> None:
        super().__init__()
        self.in_proj = CompiledInt8Linear(in_proj.weight, in_proj.bias)
        self.out_proj = CompiledInt8Linear(out_proj.weight, out_proj.bias)

    def forward(self, x: Tensor, context: LayerContext | None = None) -> Tensor:
        """(..., d_model) -> the same shape."""
        linear = self.in_proj
        rows, steps = round_rows(x.reshape(-1, x.size(-1)))
        sums = torch.ops.aten._int_mm(rows, linear.weight)
        return self.out_proj.of_rounded(*scale_relu_round(sums, steps, linear.scale, linear.bias)).view(x.shape)


class CompiledPairedLinear(PairedInt8Linear):
    """`PairedInt8Linear` with one pass before its product and one behind it."""

    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__(weight, torch.zeros(len(weight)) if bias is None else bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        rows, steps = stretch_rows(x.reshape(-1, x.size(-1)))
        return step_rows_(self.of_stretched(rows), steps, self.bias).view(*x.shape[:-1], self.num_out)


class CompiledPairedFeedForward(nn.Module):
    """`ReluFeedForward` of such maps, whose relu is in the pass behind the first product."""

    def __init__(self, in_proj: nn.Linear, out_proj: nn.Linear) -> None:
        super().__init__()
        self.in_proj = CompiledPairedLinear(in_proj.weight, in_proj.bias)
        self.out_proj = CompiledPairedLinear(out_proj.weight, out_proj.bias)

    def forward(self, x: Tensor, context: LayerContext | None = None) -> Tensor:
        """(..., d_model) -> the same shape."""
        rows, steps = stretch_rows(x.reshape(-1, x.size(-1)))
        inner = step_rows_(self.in_proj.of_stretched(rows), steps, self.in_proj.bias, relu=True)
        rows, steps = stretch_rows(inner, in_place=True)
        return step_rows_(self.out_proj.of_stretched(rows), steps, self.out_proj.bias).view(x.shape)


class Int8Slots(MultiHeadAttention):
    """A step's attention in one pass, with keys and values of 8 bits, so that it reads a quarter of the memory."""

    def to_slots(self, heads: Tensor) -> Tensor:
        return pack_heads(heads)

    def attend_to_slots(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return self.out_proj(attend(q, k, v, bias, self.scale).flatten(2))


class CompiledSelfAttention(Int8Slots, PackedSelfAttention):
    """`PackedSelfAttention` with such slots."""


class CompiledCrossAttention(Int8Slots, PackedCrossAttention):
    """`PackedCrossAttention` with such slots."""


ATTENTIONS = CompiledSelfAttention, CompiledCrossAttention
PACKINGS = {
    "int8": Packing(CompiledInt8Linear, *ATTENTIONS, CompiledReluFeedForward),
    "paired int8": Packing(CompiledPairedLinear, *ATTENTIONS, CompiledPairedFeedForward),
}
