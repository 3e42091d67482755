"""Passes over the rows of a matrix that torch has not as one operation, compiled by numba for the processor at hand.

numba is an extra: `packed.py` does the same with several operations of torch where it is not installed. What is
compiled is kept beside this file, or in numba's folder of the user's cache, and compiled anew for another processor.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.decoding.packed import LARGEST_INT8, SMALLEST

_LARGEST_INT8 = np.float32(LARGEST_INT8)
_SMALLEST_BITS = np.float32(SMALLEST).view(np.int32)
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)

Steps = NDArray[np.float32]  # by which the integers of a row are multiplied, a number a row


def compiled(signature: str) -> Callable[[Callable[..., None]], Any]:
    """A function of arrays as machine code. It holds no lock of Python's, and does what IEEE 754 says with nan."""

    def decorated(function: Callable[..., None]) -> Any:
        try:
            return njit(signature, nogil=True, error_model="numpy", cache=True)(function)
        except (RuntimeError, OSError):  # no folder to keep it in, or a full disk: compiled at each start
            return njit(signature, nogil=True, error_model="numpy")(function)

    return decorated


# The largest number of a row is found among the bits of its absolute values, which are ordered as these are, nan last:
# compilers take the maximum of many integers at once, and of floats, for nan's sake, one after the other.


@compiled("void(float32[:, ::1], int8[:, ::1], float32[::1])")
def _round_rows(rows, rounded, steps):  # pragma: no cover
    num_rows, width = rows.shape
    bits = rows.view(np.int32)
    largest_bits = np.empty(1, np.int32)
    largest = largest_bits.view(np.float32)
    for i in range(num_rows):
        most = _SMALLEST_BITS
        for j in range(width):
            most = max(most, bits[i, j] & _WITHOUT_SIGN)
        largest_bits[0] = most
        steps[i] = largest[0] / _LARGEST_INT8
        factor = _LARGEST_INT8 / largest[0]
        for j in range(width):
            rounded[i, j] = np.int8(np.int32(np.rint(rows[i, j] * factor)))


@compiled("void(int32[:, ::1], float32[::1], float32[::1], float32[::1])")
def _scale(sums, steps, scale, bias):  # pragma: no cover
    num_rows, width = sums.shape
    scaled = sums.view(np.float32)
    for i in range(num_rows):
        step = steps[i]
        for j in range(width):
            scaled[i, j] = np.float32(sums[i, j]) * scale[j] * step + bias[j]


@compiled("void(int32[:, ::1], float32[::1], float32[::1], float32[::1], int8[:, ::1])")
def _scale_relu_round(sums, steps, scale, bias, rounded):  # pragma: no cover
    num_rows, width = sums.shape
    scaled = sums.view(np.float32)
    largest_bits = np.empty(1, np.int32)
    largest = largest_bits.view(np.float32)
    for i in range(num_rows):
        step = steps[i]
        for j in range(width):
            scaled[i, j] = np.float32(sums[i, j]) * scale[j] * step + bias[j]
        most = _SMALLEST_BITS
        for j in range(width):
            most = max(most, sums[i, j])  # as integers, floats with a sign are below zero: this is relu
        largest_bits[0] = most
        # A nan may have a sign, but there is none in a row unless its step is one or is infinite.
        steps[i] = largest[0] / _LARGEST_INT8 + (step - step)
        factor = _LARGEST_INT8 / largest[0]
        for j in range(width):
            rounded[i, j] = np.int8(max(np.int32(np.rint(scaled[i, j] * factor)), np.int32(0)))


def round_rows(rows: Tensor) -> tuple[Tensor, Steps]:
    """rows (n, size) -> integers from -127 to 127, and the step of each row."""
    rounded, steps = torch.empty(rows.shape, dtype=torch.int8), np.empty(len(rows), np.float32)
    _round_rows(rows.contiguous().numpy(), rounded.numpy(), steps)
    return rounded, steps


def scale_(sums: Tensor, steps: Steps, scale: Tensor, bias: Tensor) -> Tensor:
    """sums (n, size) of integer products, times steps (n,) and scale (size,), plus bias (size,), in their own place."""
    _scale(sums.numpy(), steps, scale.numpy(), bias.numpy())
    return sums.view(torch.float32)


def scale_relu_round(sums: Tensor, steps: Steps, scale: Tensor, bias: Tensor) -> tuple[Tensor, Steps]:
    """`round_rows` of relu of `scale_`, which overwrites sums and steps."""
    rounded = torch.empty(sums.shape, dtype=torch.int8)
    _scale_relu_round(sums.numpy(), steps, scale.numpy(), bias.numpy(), rounded.numpy())
    return rounded, steps
