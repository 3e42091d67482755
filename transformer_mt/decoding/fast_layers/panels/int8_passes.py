"""The passes of `layer_parts.py` for weights and slots of 8 bits, as numba compiles them. numba does not see changes of
the files that they use: a test compares `PARTS`.
"""

import numpy as np

from transformer_mt.decoding.fast_layers.int8_kernels import _attend
from transformer_mt.decoding.fast_layers.panels.layer_parts import (
    BIAS,
    NUM_HEADS,
    NUM_KV_HEADS,
    NUM_ROWS,
    NUM_SENTENCES,
    OUT_SIZE,
    PANELS,
    SCALE,
    SIZE,
    SLOT,
    copy_columns,
    decoder_layer,
    linear,
    part,
    provide,
)
from transformer_mt.decoding.fast_layers.panels.layout import AT_ONCE, ZERO_POINT
from transformer_mt.decoding.fast_layers.panels.panel_lanes import COLUMNS, HAS_INT8, MOST_ROWS, int8_product
from transformer_mt.machine.numba_compile import compiled
from transformer_mt.model.cpu.lanes import WIDTH, each, load, maximum, maximum_of, multiply_add, subtract, sum_of

if not HAS_INT8:
    raise ImportError("this CPU has no instruction for int8, and LLVM would end the process")

PARTS = "15b5ed43c611ace0"  # the beginning of the SHA-256 of those files, as the test has them
_COLUMNS, _ROWS = COLUMNS, MOST_ROWS
_ZERO, _SMALLEST, _LARGEST = np.float32(0), np.float32(1e-30), np.float32(127)  # those of `packed_layers.py`
_many_rows, _four_rows, _one_row = (int8_product(num_rows) for num_rows in (MOST_ROWS, 4, 1))


@part
def _largest_and_step(x, start, end):
    """The largest absolute value of neighbours, and the step of their integers: nan, where a number is none."""
    largest, no_number = each(_SMALLEST), each(_ZERO)
    for j in range(start, end, WIDTH):
        value = load(x, j)
        largest = maximum(value, maximum(subtract(each(_ZERO), value), largest))
        no_number = multiply_add(value, each(_ZERO), no_number)
    most = maximum_of(largest)
    return most, most / _LARGEST + sum_of(no_number)


@part
def _round_rows(x, num_rows, size, rounded, steps):
    """The integers of each row, `ZERO_POINT` higher, and the step by which they are multiplied."""
    for i in range(num_rows):
        start, end = i * size, (i + 1) * size
        most, steps[i] = _largest_and_step(x, start, end)
        factor = _LARGEST / most
        for j in range(start, end):
            rounded[j] = np.uint8(np.int32(np.rint(x[j] * factor)) + np.int32(ZERO_POINT))


@part
def _fill_slot(x, start, head_dim, slots, steps, s, h, slot):
    """Write the integers of a head's vector into a slot, and their step behind them."""
    most, steps[s, h, slot, steps.shape[3] - 1] = _largest_and_step(x, start, start + head_dim)
    factor = _LARGEST / most
    for d in range(head_dim):
        slots[s, h, slot, d] = np.int8(np.int32(np.rint(x[start + d] * factor)))


@part
def _panel(x, num_rows, size, steps, integers, panel, numbers, scale, bias, out, at, stride):
    length, i = size // AT_ONCE, 0
    while i + _ROWS <= num_rows:
        place = at + i * stride
        _many_rows(x, i * size, length, steps, i, integers, panel, numbers, scale, bias, out, place, stride)
        i += _ROWS
    while i + 4 <= num_rows:
        place = at + i * stride
        _four_rows(x, i * size, length, steps, i, integers, panel, numbers, scale, bias, out, place, stride)
        i += 4
    while i < num_rows:
        place = at + i * stride
        _one_row(x, i * size, length, steps, i, integers, panel, numbers, scale, bias, out, place, stride)
        i += 1


@part
def _multiply(x, num_rows, place, weights, out):
    """See `layer_parts.linear`."""
    numbers, integers = weights
    size, width, scale, bias = place[SIZE], place[OUT_SIZE], place[SCALE], place[BIAS]
    rounded, steps = np.empty(num_rows * size, np.uint8), np.empty(num_rows, np.float32)
    _round_rows(x, num_rows, size, rounded, steps)
    rest = np.empty(num_rows * _COLUMNS if width % _COLUMNS else 0, np.float32)
    for c in range(0, width, _COLUMNS):
        is_whole = c + _COLUMNS <= width
        target, at, stride = (out, c, width) if is_whole else (rest, 0, _COLUMNS)
        panel = place[PANELS] + c * (size + AT_ONCE)
        _panel(rounded, num_rows, size, steps, integers, panel, numbers, scale + c, bias + c, target, at, stride)
        if not is_whole:
            copy_columns(rest, _COLUMNS, num_rows, out, c, width)


@part
def _write(heads, width, slots, sizes, head_dim):
    """See `layer_parts.write`."""
    keys, key_steps, values, value_steps = slots
    num_rows, num_kv_heads = sizes[NUM_ROWS], sizes[NUM_KV_HEADS]
    for s in range(sizes[NUM_SENTENCES]):
        for r in range(num_rows):
            slot = sizes[SLOT] + r
            for h in range(num_kv_heads):
                key = (s * num_rows + r) * width + (sizes[NUM_HEADS] + h) * head_dim
                _fill_slot(heads, key, head_dim, keys, key_steps, s, h, slot)
                _fill_slot(heads, key + num_kv_heads * head_dim, head_dim, values, value_steps, s, h, slot)


@part
def _see(q, width, slots, bias, sizes, scale, mixed):
    keys, key_steps, values, value_steps = slots
    queries = np.empty((sizes[NUM_SENTENCES], sizes[NUM_HEADS], sizes[NUM_ROWS], mixed.shape[3]), np.float32)
    for s in range(sizes[NUM_SENTENCES]):
        for r in range(sizes[NUM_ROWS]):
            start = (s * sizes[NUM_ROWS] + r) * width
            for h in range(sizes[NUM_HEADS]):
                for d in range(mixed.shape[3]):
                    queries[s, h, r, d] = q[start + h * mixed.shape[3] + d]
    per_head = bias.strides[1] != 0
    _attend(queries, keys, key_steps, values, value_steps, bias, per_head, scale, mixed)


provide(2, 4, _multiply, _write, _see)

_HEADS = "int8[:, :, :, ::1], float32[:, :, :, ::1]"  # the same memory twice: for the integers, for their step
_SLOTS = f"{_HEADS}, {_HEADS}, float32[:, :, :, :]"


@compiled("void(float32[::1], int64, int64[::1], float32[::1], int8[::1], float32[::1])")
def linear_pass(x, num_rows, place, numbers, integers, out):
    """See `layer_parts.linear`."""
    linear(x, num_rows, place, (numbers, integers), out)


@compiled(
    "void(float32[::1], float32[::1], float32[::1], int8[::1], int64[:, ::1], int64[:, ::1], int64[::1], float32[::1],"
    f"{_SLOTS}, {_SLOTS})"
)
def layer_pass(
    x, out, numbers, integers, places, norms, sizes, factors, k, k_steps, v, v_steps, bias,
    memory_k, memory_k_steps, memory_v, memory_v_steps, memory_bias,
):  # fmt: skip
    """See `layer_parts.decoder_layer`."""
    own, memory = (k, k_steps, v, v_steps), (memory_k, memory_k_steps, memory_v, memory_v_steps)
    decoder_layer(x, out, (numbers, integers), places, norms, sizes, factors, own, bias, memory, memory_bias)
