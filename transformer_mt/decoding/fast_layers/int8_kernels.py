"""Passes over the rows of a matrix for int8, for which torch needs several operations, as numba compiles them.

Where numba does not work, `packed_layers.py` does the same with torch.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.machine.numba_compile import compiled

# Those of `packed_layers.py`, written out: numba compiles anew what uses them only where this file has changed.
_LARGEST_INT8, _SMALLEST = np.float32(127), np.float32(1e-30)
_SMALLEST_BITS = _SMALLEST.view(np.int32)
_INFINITE_BITS = np.float32(np.inf).view(np.int32)  # the bits of nan are larger
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)
_LOG2_E, _LN_2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
_LOWEST_POWER = np.float32(-126)  # the lowest power of 2 that is a normal number
STEP_BYTES = 4

Steps = NDArray[np.float32]  # a number for each row, by which its integers are multiplied


# The largest number of a row is found among the bits of its absolute values, which have the same order, nan last.
# Compilers take the maximum of many integers at once. Of floats they take it one by one, for the sake of nan.


@compiled("float32(int32[::1])")
def _largest_of(bits):
    """The largest absolute value of floats, given as their bits; no less than `_SMALLEST`, and nan if one is none."""
    most = np.empty(1, np.int32)
    largest = _SMALLEST_BITS
    for j in range(len(bits)):
        largest = max(largest, bits[j] & _WITHOUT_SIGN)
    most[0] = largest
    return most.view(np.float32)[0]


@compiled("void(float32[:, ::1], int8[:, ::1], float32[:, ::1])")
def _round_rows(rows, rounded, steps):
    """Write the integers to the first places of each row of `rounded`, and the step to the last place of `steps`."""
    num_rows, width = rows.shape
    last = steps.shape[1] - 1
    bits = rows.view(np.int32)
    for i in range(num_rows):
        largest = _largest_of(bits[i])
        steps[i, last] = largest / _LARGEST_INT8
        factor = _LARGEST_INT8 / largest
        for j in range(width):
            rounded[i, j] = np.int8(np.int32(np.rint(rows[i, j] * factor)))


@compiled("void(int32[:, ::1], float32[::1], float32[::1], float32[::1])")
def _scale(sums, steps, scale, bias):
    num_rows, width = sums.shape
    scaled = sums.view(np.float32)
    for i in range(num_rows):
        step = steps[i]
        for j in range(width):
            scaled[i, j] = np.float32(sums[i, j]) * scale[j] * step + bias[j]


@compiled("void(int32[:, ::1], float32[::1], float32[::1], float32[::1], int8[:, ::1])")
def _scale_relu_round(sums, steps, scale, bias, rounded):
    num_rows, width = sums.shape
    scaled = sums.view(np.float32)
    largest_bits = np.empty(1, np.int32)
    largest = largest_bits.view(np.float32)
    for i in range(num_rows):
        step = steps[i]
        for j in range(width):
            scaled[i, j] = np.float32(sums[i, j]) * scale[j] * step + bias[j]
        most, most_without_sign = _SMALLEST_BITS, np.int32(0)
        for j in range(width):
            most = max(most, sums[i, j])  # as integers, floats with a sign are below zero: this is relu
            most_without_sign = max(most_without_sign, sums[i, j] & _WITHOUT_SIGN)
        largest_bits[0] = most
        # relu would make 0 of a nan that has a sign.
        steps[i] = largest[0] / _LARGEST_INT8 if most_without_sign < _INFINITE_BITS else np.float32(np.nan)
        factor = _LARGEST_INT8 / largest[0]
        for j in range(width):
            rounded[i, j] = np.int8(max(np.int32(np.rint(scaled[i, j] * factor)), np.int32(0)))


@compiled("void(float32[:, ::1], float32[:, ::1], float32[::1])")
def _stretch_rows(rows, stretched, steps):
    """As `_round_rows`, but not rounded. `stretched` may be `rows`."""
    num_rows, width = rows.shape
    bits = rows.view(np.int32)
    for i in range(num_rows):
        largest = _largest_of(bits[i])
        steps[i] = largest / _LARGEST_INT8 if largest < np.inf else np.float32(np.nan)
        factor = _LARGEST_INT8 / largest
        for j in range(width):
            stretched[i, j] = rows[i, j] * factor


@compiled("void(float32[:, ::1], float32[::1], float32[::1], b1)")
def _step_rows(sums, steps, bias, relu):
    num_rows, width = sums.shape
    for i in range(num_rows):
        step = steps[i]
        for j in range(width):
            sums[i, j] = sums[i, j] * step + bias[j]
        if relu:
            for j in range(width):
                sums[i, j] = np.float32(0) if sums[i, j] < np.float32(0) else sums[i, j]  # a nan stays


_SLOTS = "int8[:, :, :, ::1], float32[:, :, :, ::1]"  # the same memory twice: for the integers, for their step


@compiled(
    f"void(float32[:, :, :, ::1], {_SLOTS}, {_SLOTS}, float32[:, :, :, :], b1, float32, float32[:, :, :, ::1])",
    fastmath={"reassoc", "contract"},  # sums in any order
)
def _attend(q, k, k_steps, v, v_steps, bias, per_head, scale, out):
    num_sentences, num_heads, num_rows, head_dim = q.shape
    width = bias.shape[3]
    group = num_heads // k.shape[1]
    last = k_steps.shape[3] - 1
    seen, biases = np.empty(width, np.int64), np.empty(width, np.float32)
    scores, exponents = np.empty(width, np.float32), np.empty(width, np.int32)
    powers = exponents.view(np.float32)
    total = np.empty(head_dim, np.float32)
    num_seen = 0
    for s in range(num_sentences):
        for r in range(num_rows):
            for h in range(num_heads):
                if h == 0 or per_head:
                    num_seen = 0
                    for w in range(width):
                        if bias[s, h, r, w] != -np.inf:
                            seen[num_seen] = w
                            biases[num_seen] = bias[s, h, r, w]
                            num_seen += 1
                kv = h // group
                query, keys, values = q[s, h, r], k[s, kv], v[s, kv]
                most, no_number = np.float32(-np.inf), np.float32(0)
                for i in range(num_seen):
                    key = keys[seen[i]]
                    score = np.float32(0)
                    for d in range(head_dim):
                        score += query[d] * np.float32(key[d])
                    scores[i] = biases[i] + score * (scale * k_steps[s, kv, seen[i], last])
                    most = max(most, scores[i])
                    no_number += scores[i] - scores[i]  # 0, or nan
                for i in range(num_seen):  # e^x = 2^n e^f, with the first terms of the series for f
                    x = max((scores[i] - most) * _LOG2_E, _LOWEST_POWER)
                    n = np.rint(x)
                    f = (x - n) * _LN_2
                    series = np.float32(1 / 5040)
                    series = series * f + np.float32(1 / 720)
                    series = series * f + np.float32(1 / 120)
                    series = series * f + np.float32(1 / 24)
                    series = series * f + np.float32(1 / 6)
                    series = series * f + np.float32(1 / 2)
                    series = series * f + np.float32(1)
                    scores[i] = series * f + np.float32(1)
                    exponents[i] = (np.int32(n) + np.int32(127)) << np.int32(23)
                weights = no_number
                for i in range(num_seen):
                    weight = scores[i] * powers[i]
                    weights += weight
                    scores[i] = weight * v_steps[s, kv, seen[i], last]
                for d in range(head_dim):
                    total[d] = np.float32(0)
                for i in range(num_seen):
                    value = values[seen[i]]
                    for d in range(head_dim):
                        total[d] += scores[i] * np.float32(value[d])
                for d in range(head_dim):
                    out[s, r, h, d] = total[d] / weights


def round_rows(rows: Tensor) -> tuple[Tensor, Steps]:
    """rows (n, size) -> integers from -127 to 127, and the step of each row."""
    rounded, steps = torch.empty(rows.shape, dtype=torch.int8), np.empty((len(rows), 1), np.float32)
    _round_rows(rows.contiguous().numpy(), rounded.numpy(), steps)
    return rounded, steps[:, 0]


def scale_(sums: Tensor, steps: Steps, scale: Tensor, bias: Tensor) -> Tensor:
    """sums (n, size) of integer products, times steps (n,) and scale (size,), plus bias (size,), in their own place."""
    _scale(sums.numpy(), steps, scale.numpy(), bias.numpy())
    return sums.view(torch.float32)


def scale_relu_round(sums: Tensor, steps: Steps, scale: Tensor, bias: Tensor) -> tuple[Tensor, Steps]:
    """`round_rows(relu(scale_(…)))` in one pass, which overwrites sums and steps."""
    rounded = torch.empty(sums.shape, dtype=torch.int8)
    _scale_relu_round(sums.numpy(), steps, scale.numpy(), bias.numpy(), rounded.numpy())
    return rounded, steps


def stretch_rows(rows: Tensor, in_place: bool = False) -> tuple[Tensor, Steps]:
    """rows (n, size) -> numbers from -127 to 127 that are not rounded yet, and the step of each row."""
    rows = rows.contiguous()
    stretched, steps = rows if in_place else torch.empty_like(rows), np.empty(len(rows), np.float32)
    _stretch_rows(rows.numpy(), stretched.numpy(), steps)
    return stretched, steps


def step_rows_(sums: Tensor, steps: Steps, bias: Tensor, relu: bool = False) -> Tensor:
    """sums (n, size) times steps (n,), plus bias (size,), in their own place; of that relu, where asked."""
    _step_rows(sums.numpy(), steps, bias.numpy(), relu)
    return sums


def pack_heads(heads: Tensor) -> Tensor:
    """Round each vector as `round_rows` rounds a row: heads (sentences, heads, length, head_dim) -> int8 of the same
    shape, but with a longer last dimension. Its last four bytes are the step, a float.
    """
    *shape, head_dim = heads.shape
    packed = torch.empty(*shape, -(-head_dim // STEP_BYTES) * STEP_BYTES + STEP_BYTES, dtype=torch.int8)
    rows = packed.flatten(0, -2)
    _round_rows(heads.reshape(-1, head_dim).contiguous().numpy(), rows.numpy(), rows.view(torch.float32).numpy())
    return packed


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """The attention of q over packed k and v, in fp32 but for their rounding. Keys with a bias of -inf are skipped.

    q (sentences, num_heads, rows, head_dim), k and v (sentences, num_kv_heads, at least key_len, packed), bias
    broadcastable to (sentences, num_heads, rows, key_len) -> (sentences, rows, num_heads, head_dim).
    """
    num_sentences, num_heads, num_rows, head_dim = q.shape
    out = torch.empty(num_sentences, num_rows, num_heads, head_dim)
    slots = [array for heads in map(_whole, (k, v)) for array in (heads.numpy(), heads.view(torch.float32).numpy())]
    spread = bias.expand(num_sentences, num_heads, num_rows, -1)
    _attend(q.contiguous().numpy(), *slots, spread.numpy(), bias.size(1) > 1, np.float32(scale), out.numpy())
    return out


def _whole(slots: Tensor) -> Tensor:
    """The whole memory of which these are the first slots, so that numba sees a contiguous last dimension."""
    if slots.is_contiguous():
        return slots
    num_bytes = slots.size(3)
    return slots.as_strided((*slots.shape[:2], slots.stride(1) // num_bytes, num_bytes), slots.stride())
