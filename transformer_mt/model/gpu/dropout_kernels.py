"""Which numbers dropout keeps, as a Triton kernel and for others: eight decisions of each draw.

A draw of the generator (Philox, Salmon et al. 2011) costs some hundred operations and gives 128 bits. A compiler that
draws within the operation takes 32 of them for a number and throws the others away, which costs more than the reading
and writing of all that is around it.
"""

# Triton says that a call of a kernel never returns, which is true outside of kernels only.
# pyright: reportGeneralTypeIssues=false

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]


@triton.jit
def _pair(bits, threshold):
    """Two decisions of 32 bits, as two bytes."""
    low = ((bits & 0xFFFF).to(tl.int32) < threshold).to(tl.int64)
    high = ((bits >> 16).to(tl.int32) < threshold).to(tl.int64)
    return low | (high << 8)


@triton.jit
def keep(kept, seeds, threshold, number, block: tl.constexpr):
    """Write `number` eights of decisions, a byte each: 1 with a probability of `threshold` / 2 ** 16."""
    places = tl.program_id(0) * block + tl.arange(0, block)
    first, second, third, fourth = tl.randint4x(tl.load(seeds), places)
    lower = _pair(first, threshold) | (_pair(second, threshold) << 16)
    upper = _pair(third, threshold) | (_pair(fourth, threshold) << 16)
    tl.store(kept + places, lower | (upper << 32), mask=places < number)


@triton.jit
def chosen(seed, rows, threshold, height: tl.constexpr, width: tl.constexpr):
    """Which numbers of a tile (height, width) are kept: True with a probability of `threshold` / 2 ** 16. `rows`
    (height,) are the tile's rows, each with a number of its own. The same in every kernel that asks for the same.
    """
    eighths: tl.constexpr = width // 8
    first, second, third, fourth = tl.randint4x(seed, rows[:, None] * eighths + tl.arange(0, eighths)[None, :])
    bits = tl.join(tl.join(first, second), tl.join(third, fourth))
    bits = tl.join((bits & 0xFFFF).to(tl.int32), (bits >> 16).to(tl.int32))
    return tl.reshape(bits, (height, width)) < threshold
