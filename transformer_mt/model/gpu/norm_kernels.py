"""The end of a post-norm sublayer as Triton kernels: the bias of the last product, dropout, sum and layer norm in one
pass forward and one backward.

A program holds whole rows. So it reads and writes each number once, and the backward pass sums the gradients of both
biases and of the norm's weight over its rows on the way. What a compiler makes of the formulas reads the rows again for
every such sum. Read and written is the type of products; between, numbers are float32.
"""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from transformer_mt.model.gpu.dropout_kernels import chosen


@triton.jit(do_not_specialize=["num_rows"])
def norm_forward(
    x, y, y_bias, weight, bias, out, moments, seeds, threshold, scale, eps, num_rows,
    size: tl.constexpr, width: tl.constexpr, height: tl.constexpr, drops: tl.constexpr, has_bias: tl.constexpr,
):  # fmt: skip
    """out = norm(x + dropout(y + y_bias)); moments (num_rows, 2): the mean of a row of the sum, and 1 over its
    deviation. x and y are (num_rows, size).
    """
    rows = tl.program_id(0) * height + tl.arange(0, height)
    columns = tl.arange(0, width)
    there = (rows < num_rows)[:, None] & (columns < size)[None, :]
    places = rows.to(tl.int64)[:, None] * size + columns[None, :]
    added = tl.load(y + places, mask=there, other=0.0).to(tl.float32)
    if has_bias:
        added += tl.load(y_bias + columns, mask=columns < size, other=0.0).to(tl.float32)[None, :]
    if drops:
        added = tl.where(chosen(tl.load(seeds), rows, threshold, height, width), added * scale, 0.0)
    total = tl.load(x + places, mask=there, other=0.0).to(tl.float32) + added
    mean = tl.sum(total, 1) / size
    centred = tl.where(there, total - mean[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / size + eps)
    of_weight = tl.load(weight + columns, mask=columns < size, other=0.0)
    of_bias = tl.load(bias + columns, mask=columns < size, other=0.0)
    result = centred * rate[:, None] * of_weight[None, :] + of_bias[None, :]
    tl.store(out + places, result.to(out.dtype.element_ty), mask=there)
    tl.store(moments + 2 * rows, mean, mask=rows < num_rows)
    tl.store(moments + 2 * rows + 1, rate, mask=rows < num_rows)


@triton.jit(do_not_specialize=["num_rows"])
def norm_backward(
    grad, past_grad, x, y, y_bias, moments, weight, x_grad, y_grad, sums, seeds, threshold, scale, num_rows,
    size: tl.constexpr, width: tl.constexpr, height: tl.constexpr, stages: tl.constexpr, drops: tl.constexpr,
    has_bias: tl.constexpr, has_past: tl.constexpr,
):  # fmt: skip
    """The gradients of x and y, where that of the norm is grad + past_grad; in sums (programs, 3, size) of weight,
    bias and y_bias, summed over the rows of each program, which takes every so many-th tile.
    """
    columns = tl.arange(0, width)
    of_weight = tl.load(weight + columns, mask=columns < size, other=0.0)
    of_y_bias = tl.zeros((width,), tl.float32)
    if has_bias:
        of_y_bias = tl.load(y_bias + columns, mask=columns < size, other=0.0).to(tl.float32)
    weight_total = tl.zeros((height, width), tl.float32)
    bias_total = tl.zeros((height, width), tl.float32)
    y_bias_total = tl.zeros((height, width), tl.float32)
    seed = tl.load(seeds)
    step = tl.num_programs(0) * height
    for start in tl.range(tl.program_id(0) * height, num_rows, step, num_stages=stages):
        rows = start + tl.arange(0, height)
        there = (rows < num_rows)[:, None] & (columns < size)[None, :]
        places = rows.to(tl.int64)[:, None] * size + columns[None, :]
        upstream = tl.load(grad + places, mask=there, other=0.0).to(tl.float32)
        if has_past:
            upstream += tl.load(past_grad + places, mask=there, other=0.0).to(tl.float32)
        added = tl.load(y + places, mask=there, other=0.0).to(tl.float32) + of_y_bias[None, :]
        total = tl.load(x + places, mask=there, other=0.0).to(tl.float32)
        mean = tl.load(moments + 2 * rows, mask=rows < num_rows, other=0.0)
        rate = tl.load(moments + 2 * rows + 1, mask=rows < num_rows, other=0.0)
        factor = 1.0
        if drops:
            factor = tl.where(chosen(seed, rows, threshold, height, width), scale, 0.0)
        total += added * factor
        normed = tl.where(there, (total - mean[:, None]) * rate[:, None], 0.0)
        weighted = upstream * of_weight[None, :]
        along = tl.sum(weighted * normed, 1) / size
        value = (weighted - normed * along[:, None] - (tl.sum(weighted, 1) / size)[:, None]) * rate[:, None]
        tl.store(x_grad + places, value.to(x_grad.dtype.element_ty), mask=there)
        value *= factor
        tl.store(y_grad + places, value.to(y_grad.dtype.element_ty), mask=there)
        weight_total += upstream * normed
        bias_total += upstream
        if has_bias:
            y_bias_total += tl.where(there, value, 0.0)
    own = sums + tl.program_id(0) * 3 * size + columns
    tl.store(own, tl.sum(weight_total, 0), mask=columns < size)
    tl.store(own + size, tl.sum(bias_total, 0), mask=columns < size)
    tl.store(own + 2 * size, tl.sum(y_bias_total, 0), mask=columns < size)
