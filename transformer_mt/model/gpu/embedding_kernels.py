"""The foot of a stack as Triton kernels: a program has whole rows, as in `norm_kernels.py`."""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from transformer_mt.model.gpu.dropout_kernels import chosen


@triton.jit(do_not_specialize=["num_rows"])
def embed(
    table, ids, positions, at, out, seeds, threshold, kept_scale, scale, num_rows,
    size: tl.constexpr, width: tl.constexpr, height: tl.constexpr, drops: tl.constexpr, has_positions: tl.constexpr,
):  # fmt: skip
    """out (num_rows, size) = dropout(table[ids] * scale + positions[at]); ids and at (num_rows,)."""
    rows = tl.program_id(0) * height + tl.arange(0, height)
    columns = tl.arange(0, width)
    there = (rows < num_rows)[:, None] & (columns < size)[None, :]
    word = tl.load(ids + rows, mask=rows < num_rows, other=0)
    value = tl.load(table + word[:, None] * size + columns[None, :], mask=there, other=0.0).to(tl.float32) * scale
    if has_positions:
        position = tl.load(at + rows, mask=rows < num_rows, other=0)
        value += tl.load(positions + position[:, None] * size + columns[None, :], mask=there, other=0.0)
    if drops:
        value = tl.where(chosen(tl.load(seeds), rows, threshold, height, width), value * kept_scale, 0.0)
    places = rows.to(tl.int64)[:, None] * size + columns[None, :]
    tl.store(out + places, value.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["num_rows"])
def embed_backward(
    grad, of_rows, seeds, threshold, factor, num_rows,
    size: tl.constexpr, width: tl.constexpr, height: tl.constexpr, drops: tl.constexpr,
):  # fmt: skip
    """of_rows (num_rows, size): the gradients of the words' vectors, a row for each token."""
    rows = tl.program_id(0) * height + tl.arange(0, height)
    columns = tl.arange(0, width)
    there = (rows < num_rows)[:, None] & (columns < size)[None, :]
    places = rows.to(tl.int64)[:, None] * size + columns[None, :]
    value = tl.load(grad + places, mask=there, other=0.0).to(tl.float32) * factor
    if drops:
        value = tl.where(chosen(tl.load(seeds), rows, threshold, height, width), value, 0.0)
    tl.store(of_rows + places, value.to(of_rows.dtype.element_ty), mask=there)
