"""What passes over many rows have in common, as a Triton kernel."""

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]


@triton.jit(do_not_specialize=["num_rows"])
def column_sums(x, out, num_rows, size, width: tl.constexpr, height: tl.constexpr):
    """out (size,): the sums of x (num_rows, size), float32, always in the same order."""
    columns = tl.program_id(0) * width + tl.arange(0, width)
    total = tl.zeros((height, width), tl.float32)
    for start in range(0, num_rows, height):
        rows = start + tl.arange(0, height)
        there = (rows < num_rows)[:, None] & (columns < size)[None, :]
        total += tl.load(x + rows[:, None] * size + columns[None, :], mask=there, other=0.0)
    tl.store(out + columns, tl.sum(total, 0), mask=columns < size)
