"""The passes of `layer_parts.py` for float32, as numba compiles them. numba does not see changes of the files that they
use: a test compares `PARTS`.
"""

import numpy as np

from transformer_mt.decoding.fast_layers.panels.layer_parts import (
    BIAS,
    NUM_HEADS,
    NUM_KV_HEADS,
    NUM_ROWS,
    NUM_SENTENCES,
    OUT_SIZE,
    PANELS,
    SIZE,
    SLOT,
    copy_columns,
    decoder_layer,
    linear,
    part,
    provide,
)
from transformer_mt.decoding.fast_layers.panels.panel_lanes import COLUMNS, MOST_ROWS, float_product
from transformer_mt.decoding.fast_layers.step_kernels import _attend
from transformer_mt.machine.numba_compile import compiled
from transformer_mt.model.cpu.lanes import WIDTH, load, store

PARTS = "e7fc2aa11a62108a"  # the beginning of the SHA-256 of those files, as the test has them
_COLUMNS, _ROWS = COLUMNS, MOST_ROWS
_many_rows, _four_rows, _one_row = (float_product(num_rows) for num_rows in (MOST_ROWS, 4, 1))


@part
def _panel(x, num_rows, size, numbers, panel, bias, out, at, stride):
    i = 0
    while i + _ROWS <= num_rows:
        _many_rows(x, i * size, size, numbers, panel, bias, out, at + i * stride, stride)
        i += _ROWS
    while i + 4 <= num_rows:
        _four_rows(x, i * size, size, numbers, panel, bias, out, at + i * stride, stride)
        i += 4
    while i < num_rows:
        _one_row(x, i * size, size, numbers, panel, bias, out, at + i * stride, stride)
        i += 1


@part
def _multiply(x, num_rows, place, weights, out):
    """out = x @ weight + bias."""
    (numbers,) = weights
    size, width = place[SIZE], place[OUT_SIZE]
    rest = np.empty(num_rows * _COLUMNS if width % _COLUMNS else 0, np.float32)
    for c in range(0, width, _COLUMNS):
        is_whole = c + _COLUMNS <= width
        target, at, stride = (out, c, width) if is_whole else (rest, 0, _COLUMNS)
        _panel(x, num_rows, size, numbers, place[PANELS] + c * size, place[BIAS] + c, target, at, stride)
        if not is_whole:
            copy_columns(rest, _COLUMNS, num_rows, out, c, width)


@part
def _query_strides(sizes, head_dim, width):
    """Of queries in rows of this width: to the next sentence, head and row."""
    strides = np.empty((3, 3), np.int64)
    strides[0, 0], strides[0, 1], strides[0, 2] = sizes[NUM_ROWS] * width, head_dim, width
    return strides


@part
def _see(q, width, slots, bias, sizes, scale, mixed):
    """The attention of queries, which begin the rows of q, over slots."""
    keys, values = slots
    num_kv_heads, head_dim = sizes[NUM_KV_HEADS], mixed.shape[3]
    capacity = len(keys) // (sizes[NUM_SENTENCES] * num_kv_heads * head_dim)
    strides = _query_strides(sizes, head_dim, width)
    for which in (1, 2):
        strides[which, 0], strides[which, 1] = num_kv_heads * capacity * head_dim, capacity * head_dim
        strides[which, 2] = head_dim
    group = sizes[NUM_HEADS] // num_kv_heads
    rows = mixed.reshape(-1, head_dim)
    _attend(q, keys, values, strides, bias, group, bias.strides[1] != 0, scale, rows)


@part
def _write(heads, width, slots, sizes, head_dim):
    """Put the keys and values of new tokens, which follow the queries in rows of this width, into slots."""
    num_kv_heads, num_rows, first = sizes[NUM_KV_HEADS], sizes[NUM_ROWS], sizes[SLOT]
    keys, values = slots
    capacity = len(keys) // (sizes[NUM_SENTENCES] * num_kv_heads * head_dim)
    for s in range(sizes[NUM_SENTENCES]):
        for r in range(num_rows):
            for h in range(num_kv_heads):
                key = (s * num_rows + r) * width + (sizes[NUM_HEADS] + h) * head_dim
                value = key + num_kv_heads * head_dim
                slot = ((s * num_kv_heads + h) * capacity + first + r) * head_dim
                for d in range(0, head_dim, WIDTH):
                    store(keys, slot + d, load(heads, key + d))
                    store(values, slot + d, load(heads, value + d))


provide(1, 2, _multiply, _write, _see)

_SLOTS = "float32[::1], float32[::1], float32[:, :, :, :]"


@compiled("void(float32[::1], int64, int64[::1], float32[::1], float32[::1])")
def linear_pass(x, num_rows, place, numbers, out):
    """See `layer_parts.linear`."""
    linear(x, num_rows, place, (numbers,), out)


@compiled(
    "void(float32[::1], float32[::1], float32[::1], int64[:, ::1], int64[:, ::1], int64[::1], float32[::1],"
    f"{_SLOTS}, {_SLOTS})"
)
def layer_pass(x, out, numbers, places, norms, sizes, factors, k, v, bias, memory_k, memory_v, memory_bias):
    """See `layer_parts.decoder_layer`."""
    own, memory = (k, v), (memory_k, memory_v)
    decoder_layer(x, out, (numbers,), places, norms, sizes, factors, own, bias, memory, memory_bias)
