"""Passes over many numbers in training on a CPU, as numba compiles them: dropout, and the loss over the vocabulary.

Dropout makes the random number of an element where it is used, forward and once more back. So no random number goes to
memory or is kept for the gradient, and a pass takes no longer than its numbers take to come and go.

numba does not compile these passes anew after a change in another file, so all that they use is here.
"""

import numpy as np
import torch
from numba import njit, prange, types
from numba.extending import overload
from torch import Tensor

from transformer_mt.machine.numba_compile import ParallelPass

_Pair = tuple[Tensor, Tensor]
DTYPES = torch.float32, torch.bfloat16
_LEVELS = 2**32  # a probability is rounded to one of so many

# numba's integers grow to 64 bits in every sum and product, and a processor takes half as many of those at once.
_U = np.uint32
_ZERO = np.float32(0)
_NAN = np.uint16(0x7FC0)  # in bfloat16
_LOG2_E, _LN_2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
# Below this power of 2 the result is 0. It is nothing beside the largest, and a processor takes 30 times as long for
# products of such numbers.
_LOWEST_POWER = np.float32(-100)


def _wide(number):
    """A float32 as it is. A uint16 is a bfloat16, the upper half of a float32."""
    raise NotImplementedError  # numba takes the overload for the type


@overload(_wide)
def _wide_of(number):
    if number == types.uint16:
        return lambda number: _U(_U(number) << _U(16)).view(np.float32)
    return lambda number: number


def _narrow(number, like):
    """A float32 in the type of the array `like`, rounded to nearest, to even where two are equally near."""
    raise NotImplementedError


@overload(_narrow)
def _narrow_of(number, like):
    if like.dtype == types.uint16:

        def to_bfloat16(number, like):
            bits = np.float32(number).view(np.uint32)
            rounded = _U(bits + _U(_U(0x7FFF) + _U(_U(bits >> _U(16)) & _U(1))))
            return np.uint16(rounded >> _U(16)) if number == number else _NAN

        return to_bfloat16
    return lambda number, like: number


@njit(inline="always")
def _random_bits(place, first_key, second_key):
    """32 random bits, a function of a place and two keys: two multiplications by the constants of `lowbias32`, with a
    key before each. Wellons (2018) found the constants for numbers that follow each other.
    """
    x = _U(_U(place) ^ first_key)
    x = _U(_U(x ^ _U(x >> _U(16))) * _U(0x7FEB352D))
    x = _U(x ^ second_key)
    x = _U(_U(x ^ _U(x >> _U(15))) * _U(0x846CA68B))
    return _U(x ^ _U(x >> _U(16)))


@njit(inline="always")
def _exp(x):
    """e^x = 2^n e^f for a float32 up to 88, with the first terms of the series for f; 0 under 1e-30."""
    power = x * _LOG2_E
    is_none = power < _LOWEST_POWER  # False for nan
    power = _ZERO if is_none else power
    n = np.rint(power)
    f = (power - n) * _LN_2
    series = np.float32(1 / 5040)
    series = series * f + np.float32(1 / 720)
    series = series * f + np.float32(1 / 120)
    series = series * f + np.float32(1 / 24)
    series = series * f + np.float32(1 / 6)
    series = series * f + np.float32(1 / 2)
    series = series * f + np.float32(1)
    series = series * f + np.float32(1)
    result = series * np.int32(np.int32(np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if is_none else result


@njit(inline="always")
def _in_order(x):
    """An integer in the order of the float32. The integer of nan is larger than all others, or smaller.

    Compilers compute the maximum of many integers at once, and that of floats one by one, for the sake of nan.
    """
    bits = np.float32(x).view(np.int32)
    return np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(inline="always")
def _out_of_order(integer):
    """The float32 to which `_in_order` gave this integer: on bits, it is its own inverse."""
    return np.int32(integer ^ np.int32(np.int32(integer >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@ParallelPass
def _times(x, out, first_key, second_key, dropped, scale):
    for i in prange(len(x)):
        kept = _random_bits(i, first_key, second_key) >= dropped
        out[i] = _narrow(_wide(x[i]) * scale if kept else _ZERO, out)


@ParallelPass
def _added(x, y, out, first_key, second_key, dropped, scale):
    for i in prange(len(x)):
        kept = _random_bits(i, first_key, second_key) >= dropped
        out[i] = _narrow(_wide(x[i]) + (_wide(y[i]) * scale if kept else _ZERO), out)


@ParallelPass
def _after_relu(x, out, first_key, second_key, dropped, scale):
    for i in prange(len(x)):
        kept = _random_bits(i, first_key, second_key) >= dropped
        number = _wide(x[i])
        out[i] = _narrow(number * scale if kept and not number <= _ZERO else _ZERO, out)  # nan stays nan


@ParallelPass
def _through_relu(grad, result, out, scale):
    for i in prange(len(grad)):
        out[i] = _narrow(_wide(grad[i]) * scale if not _wide(result[i]) <= _ZERO else _ZERO, out)


class CompiledDraw:
    """Which elements a seed keeps, each with probability 1 - p: their factor is `scale`, 1 / (1 - p), else 0."""

    def __init__(self, seed: int, p: float) -> None:
        dropped = min(round(p * _LEVELS), _LEVELS - 1)
        self.scale = _LEVELS / (_LEVELS - dropped)
        key = _scrambled(seed)
        self.arguments = _U(key & 0xFFFFFFFF), _U(key >> 32), _U(dropped), np.float32(self.scale)

    def times(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """x * factors, as `dtype`."""
        out = torch.empty(x.shape, dtype=dtype)
        _times(_flat(x), out.view(-1), *self.arguments)
        return out

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y * factors; x is float32, or of y's type."""
        out = torch.empty(x.shape, dtype=x.dtype)
        _added(_flat(x), _flat(y), out.view(-1), *self.arguments)
        return out

    def after_relu(self, x: Tensor) -> Tensor:
        """relu(x) * factors."""
        out = torch.empty(x.shape, dtype=x.dtype)
        _after_relu(_flat(x), out.view(-1), *self.arguments)
        return out

    def through_relu(self, grad: Tensor, result: Tensor) -> Tensor:
        """The gradient of x in `after_relu`, from that of its result: where the result is 0, it is 0."""
        out = torch.empty(grad.shape, dtype=grad.dtype)
        _through_relu(_flat(grad), _flat(result), out.view(-1), self.arguments[-1])
        return out


def new_draw(p: float) -> CompiledDraw:
    """The next draw of torch's global generator."""
    return CompiledDraw(int(torch.randint(2**63 - 1, ())), p)


def _scrambled(seed: int) -> int:
    """64 bits, each of which depends on the whole seed: the last steps of SplitMix64 (Steele et al. 2014)."""
    key = (seed + 0x9E3779B97F4A7C15) % 2**64
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    return key ^ key >> 31


def _flat(x: Tensor) -> Tensor:
    return x.contiguous().view(-1)


def _exponentials(logits, targets, label_smoothing, s, nll, normalisers):
    num_rows, width = logits.shape
    for i in prange(num_rows):
        most = _in_order(_wide(logits[i, 0]))
        for j in range(width):
            most = max(most, _in_order(_wide(logits[i, j])))
        largest = _out_of_order(most)
        target = targets[i]
        at_target = _wide(logits[i, target]) - largest
        total = np.float32(0)
        for j in range(width):
            z = _exp(_wide(logits[i, j]) - largest)
            total += z
            logits[i, j] = _narrow(z, logits)
        log_total = np.log(total)
        s[i], nll[i], normalisers[i] = total, log_total - at_target, log_total + largest
        logits[i, target] = _narrow(_exp(at_target) + total * (label_smoothing - np.float32(1)), logits)


_EXPONENTIALS = ParallelPass(_exponentials, fastmath={"reassoc", "contract"})  # sums in any order


def _refuse_other_words(targets: Tensor, num_words: int) -> None:
    if len(targets) and not 0 <= targets.min() <= targets.max() < num_words:
        raise IndexError(f"a target is not among {num_words} words")  # the pass would write anywhere


def exponentials(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """`chunked_loss.exponentials` of logits of one of `DTYPES`."""
    _refuse_other_words(targets, logits.size(1))
    targets = targets.contiguous()
    s, nll, normalisers = (torch.empty(len(logits)) for _ in range(3))
    _EXPONENTIALS(logits, targets, np.float32(label_smoothing), s, nll, normalisers)
    return s[:, None], nll.sum(), normalisers.sum()


@njit(inline="always")
def _largest(row):
    most = _in_order(_wide(row[0]))
    for j in range(len(row)):
        most = max(most, _in_order(_wide(row[j])))
    return _out_of_order(most)


def _pair_gradients(first, second, targets, first_share, second_share, forth, back, smoothing, sums):
    num_rows, width = first.shape
    for i in prange(num_rows):
        top_x, top_y = _largest(first[i]), _largest(second[i])
        total_x = total_y = moment_x = moment_y = np.float32(0)
        for j in range(width):
            x, y = _wide(first[i, j]) - top_x, _wide(second[i, j]) - top_y
            z_x, z_y = _exp(x), _exp(y)
            total_x += z_x
            total_y += z_y
            moment_x += z_x * (x - y)
            moment_y += z_y * (y - x)
        log_x, log_y = np.log(total_x), np.log(total_y)
        forward, backward = moment_x / total_x - log_x + log_y, moment_y / total_y - log_y + log_x
        target = targets[i]
        sums[0, i] = log_x + top_x - _wide(first[i, target])
        sums[1, i] = log_y + top_y - _wide(second[i, target])
        sums[2, i], sums[3, i], sums[4, i], sums[5, i] = log_x + top_x, log_y + top_y, forward, backward
        one_x, one_y = np.float32(1) / total_x, np.float32(1) / total_y
        own_x, own_y = first_share + back - forth * forward, second_share + forth - back * backward
        x, y = _wide(first[i, target]) - top_x, _wide(second[i, target]) - top_y
        d, p, q = (x - log_x) - (y - log_y), _exp(x) * one_x, _exp(y) * one_y
        at_x = p * (own_x + forth * d) - back * q + first_share * (smoothing - np.float32(1))
        at_y = q * (own_y - back * d) - forth * p + second_share * (smoothing - np.float32(1))
        for j in range(width):
            x, y = _wide(first[i, j]) - top_x, _wide(second[i, j]) - top_y
            d, p, q = (x - log_x) - (y - log_y), _exp(x) * one_x, _exp(y) * one_y
            first[i, j] = _narrow(p * (own_x + forth * d) - back * q, first)
            second[i, j] = _narrow(q * (own_y - back * d) - forth * p, second)
        first[i, target], second[i, target] = _narrow(at_x, first), _narrow(at_y, second)


_PAIR_GRADIENTS = ParallelPass(_pair_gradients, fastmath={"reassoc", "contract"})


def pair_gradients(first: Tensor, second: Tensor, targets: Tensor, weights: tuple[float, ...]) -> tuple[_Pair, ...]:
    """`chunked_pairs.pair_gradients` of logits of one of `DTYPES`; `weights` is a `PairWeights`."""
    _refuse_other_words(targets, first.size(1))
    sums = torch.empty(6, len(first))
    _PAIR_GRADIENTS(first, second, targets.contiguous(), *map(np.float32, weights[:5]), sums)
    nll, other_nll, normalisers, other_normalisers, forward, backward = sums.sum(dim=1)
    return (nll, other_nll), (normalisers, other_normalisers), (forward, backward)


CompiledDraw(0, 0.5).times(torch.ones(1), torch.float32)  # raises on import where numba does not work
