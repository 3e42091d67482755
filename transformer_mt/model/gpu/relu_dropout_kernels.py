"""Bias, relu and dropout as Triton kernels: one pass forward, and one backward that sums the bias's gradient too."""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from transformer_mt.model.gpu.dropout_kernels import chosen


@triton.jit(do_not_specialize=["num_rows"])
def relu_forward(
    x, bias, out, seeds, threshold, scale, num_rows,
    size: tl.constexpr, width: tl.constexpr, height: tl.constexpr, drops: tl.constexpr, has_bias: tl.constexpr,
):  # fmt: skip
    """out = dropout(relu(x + bias)), for a tile of x (num_rows, size)."""
    rows = tl.program_id(0) * height + tl.arange(0, height)
    block = tl.program_id(1)
    columns = block * width + tl.arange(0, width)
    there = (rows < num_rows)[:, None] & (columns < size)[None, :]
    places = rows.to(tl.int64)[:, None] * size + columns[None, :]
    value = tl.load(x + places, mask=there, other=0.0).to(tl.float32)
    if has_bias:
        value += tl.load(bias + columns, mask=columns < size, other=0.0).to(tl.float32)[None, :]
    value = tl.where(value <= 0.0, 0.0, value)  # nan stays nan
    if drops:
        row_numbers = rows * tl.num_programs(1) + block
        value = tl.where(chosen(tl.load(seeds), row_numbers, threshold, height, width), value * scale, 0.0)
    tl.store(out + places, value.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["num_rows"])
def relu_backward(
    grad, out, x_grad, bias_sums, scale, num_rows,
    size: tl.constexpr, width: tl.constexpr, height: tl.constexpr, stages: tl.constexpr, has_bias: tl.constexpr,
):  # fmt: skip
    """The gradient of x: what was kept and positive is positive in `out`. In bias_sums (programs, size) its sums over
    the rows of each program, which takes every so many-th tile.
    """
    columns = tl.program_id(1) * width + tl.arange(0, width)
    total = tl.zeros((height, width), tl.float32)
    for start in tl.range(tl.program_id(0) * height, num_rows, tl.num_programs(0) * height, num_stages=stages):
        rows = start + tl.arange(0, height)
        there = (rows < num_rows)[:, None] & (columns < size)[None, :]
        places = rows.to(tl.int64)[:, None] * size + columns[None, :]
        passed = tl.load(out + places, mask=there, other=0.0).to(tl.float32) > 0.0
        value = tl.where(passed, tl.load(grad + places, mask=there, other=0.0).to(tl.float32) * scale, 0.0)
        tl.store(x_grad + places, value.to(x_grad.dtype.element_ty), mask=there)
        total += value
    if has_bias:
        own = bias_sums + tl.program_id(0) * size + columns
        tl.store(own, tl.sum(total, 0), mask=columns < size)
