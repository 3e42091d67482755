"""A step of a decoder layer, put together from passes that numba compiles.

All arrays are flat. `numbers` holds the float32 of a layer; a row of `places` says where the parts of a product begin
there, and one of `norms` where weight and bias of a norm do. What multiplies, and what keeps keys and values in slots,
stands in `float_passes.py` and `int8_passes.py`. numba chooses among what they `provide` by the arrays that there are.
"""

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from transformer_mt.model.cpu.lanes import WIDTH, add, each, load, multiply, multiply_add, store, subtract, sum_of

SIZE, OUT_SIZE, PANELS, BIAS, SCALE = range(5)  # columns of `places`
# Rows of `places` for a layer: into and out of each of its three sublayers, which are these.
SELF_ATTENTION, CROSS_ATTENTION, FEED_FORWARD = range(3)
NUM_SENTENCES, NUM_ROWS, NUM_HEADS, NUM_KV_HEADS, SLOT, IS_PRE_NORM = range(6)  # of `sizes`
EPS, ATTENTION_SCALE = range(2)  # of `factors`
_ZERO, _ONE = np.float32(0), np.float32(1)

_OPTIONS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
part = njit(error_model="numpy", **_OPTIONS)


def linear(x, num_rows, place, weights, out):
    """out = x @ weight + bias, for rows of x."""


def write(heads, width, slots, sizes, head_dim):
    """Put the keys and values of new tokens, which follow the queries in rows of this width, into slots."""


def see(q, width, slots, bias, sizes, scale, mixed):
    """mixed (sentences, rows, heads, head_dim) = the attention of queries, which begin rows of this width, to slots."""


def provide(num_weights: int, num_slots: int, product: Any, fill: Any, attend: Any) -> None:
    """Have these do what `linear`, `write` and `see` say, where weights and slots are so many arrays."""

    @overload(linear)
    def choose_linear(x, num_rows, place, weights, out):
        if len(weights) == num_weights:
            return lambda x, num_rows, place, weights, out: product(x, num_rows, place, weights, out)
        return None

    @overload(write)
    def choose_write(heads, width, slots, sizes, head_dim):
        if len(slots) == num_slots:
            return lambda heads, width, slots, sizes, head_dim: fill(heads, width, slots, sizes, head_dim)
        return None

    @overload(see)
    def choose_see(q, width, slots, bias, sizes, scale, mixed):
        if len(slots) == num_slots:
            return lambda q, width, slots, bias, sizes, scale, mixed: attend(q, width, slots, bias, sizes, scale, mixed)
        return None


@part
def copy_columns(columns, stride, num_rows, out, first, width):
    """The columns of a last panel that is only partly filled, from rows that are a stride apart."""
    for i in range(num_rows):
        for j in range(first, width):
            out[i * width + j] = columns[i * stride + j - first]


@part
def normed(x, num_rows, size, numbers, weight, bias, eps, out):
    """Layer norm of rows; `out` may be x."""
    share = _ONE / np.float32(size)
    for start in range(0, num_rows * size, size):
        total = each(_ZERO)
        for j in range(0, size, WIDTH):
            total = add(total, load(x, start + j))
        mean, squares = each(sum_of(total) * share), each(_ZERO)
        for j in range(0, size, WIDTH):
            away = subtract(load(x, start + j), mean)
            squares = multiply_add(away, away, squares)
        factor = each(_ONE / np.sqrt(sum_of(squares) * share + eps))
        for j in range(0, size, WIDTH):
            scaled = multiply(subtract(load(x, start + j), mean), factor)
            store(out, start + j, multiply_add(scaled, load(numbers, weight + j), load(numbers, bias + j)))


@part
def add_rows(x, y):
    for j in range(0, len(x), WIDTH):
        store(x, j, add(load(x, j), load(y, j)))


@part
def relu(x, size):
    for j in range(size):
        x[j] = _ZERO if x[j] < _ZERO else x[j]  # a nan stays


@part
def decoder_layer(x, out, weights, places, norms, sizes, factors, own, bias, memory, memory_bias):
    """A step of a decoder layer: x (rows, d_model) -> out. own and memory are the slots of the two attentions."""
    numbers = weights[0]
    num_rows = sizes[NUM_SENTENCES] * sizes[NUM_ROWS]
    size = places[0, SIZE]
    eps, scale = factors[EPS], factors[ATTENTION_SCALE]
    num_heads = sizes[NUM_HEADS]
    head_dim = size // num_heads
    is_pre_norm = sizes[IS_PRE_NORM] == 1
    h = np.empty(num_rows * size, np.float32)
    wide = np.empty(num_rows * max(places[0, OUT_SIZE], places[2 * FEED_FORWARD, OUT_SIZE]), np.float32)
    mixed = np.empty(num_rows * size, np.float32)
    heads = mixed.reshape(sizes[NUM_SENTENCES], sizes[NUM_ROWS], num_heads, head_dim)
    for j in range(0, len(x), WIDTH):
        store(out, j, load(x, j))
    for sublayer in range(3):
        source = out
        if is_pre_norm:
            normed(out, num_rows, size, numbers, norms[sublayer, 0], norms[sublayer, 1], eps, h)
            source = h
        first = places[2 * sublayer]
        width = first[OUT_SIZE]
        linear(source, num_rows, first, weights, wide)
        if sublayer == FEED_FORWARD:
            relu(wide, num_rows * width)
        else:
            if sublayer == SELF_ATTENTION:
                write(wide, width, own, sizes, head_dim)
            slots, mask = (own, bias) if sublayer == SELF_ATTENTION else (memory, memory_bias)
            see(wide, width, slots, mask, sizes, scale, heads)
        linear(wide if sublayer == FEED_FORWARD else mixed, num_rows, places[2 * sublayer + 1], weights, h)
        add_rows(out, h)
        if not is_pre_norm:
            normed(out, num_rows, size, numbers, norms[sublayer, 0], norms[sublayer, 1], eps, out)
