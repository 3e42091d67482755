"""Random numbers as a function of what they are for, the same on every device and in every batch.

The generator is SplitMix64 (Steele, Lea and Flood 2014, section 5): number n of a key is a mix of the bits of key + n *
GOLDEN. So a number can be had without those before it, and nothing is remembered.
"""

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd
_MIXERS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)
_LAST_SHIFT = 31
_MASK = 2**64 - 1
_NUM_BITS = 32  # of a number, as a fraction


def key_of(*numbers: int) -> int:
    """A key (64 bits, signed) of whole numbers from 0 to 2^64 - 1; other numbers, or another order, have another."""
    key = 0
    for number in numbers:
        key = _mixed_number(_mixed_number((key + GOLDEN) & _MASK) ^ number)
    return _signed(key)


def keys_of_step(keys: Tensor, step: int) -> Tensor:
    """The keys of one step, of keys of any shape: number `step` of each."""
    return _mixed(keys + _signed(step * GOLDEN))


def gumbel(keys: Tensor, counters: Tensor) -> Tensor:
    """Numbers of the standard Gumbel distribution, number `counters` of each key: keys (rows,), counters (rows or 1,
    any) -> float32 (rows, any). The largest of log p_i + g_i is i with the probability p_i (Gumbel 1954).
    """
    bits = _mixed(keys[:, None] + counters * _signed(GOLDEN))
    share = (_shifted(bits, 64 - _NUM_BITS).float() + 0.5) * 2.0**-_NUM_BITS
    # A share that rounds to 1 would make -inf of a token that is perhaps the only one.
    return -torch.log(-torch.log1p(-share.clamp_(max=1 - 2.0**-24)))


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in _MIXERS:
        bits = (bits ^ _shifted(bits, shift)).mul_(_signed(factor))
    return bits ^ _shifted(bits, _LAST_SHIFT)


def _shifted(bits: Tensor, shift: int) -> Tensor:
    """To the right, with zeros on the left: torch repeats the sign."""
    return (bits >> shift).bitwise_and_((1 << (64 - shift)) - 1)


def _mixed_number(bits: int) -> int:
    for shift, factor in _MIXERS:
        bits = ((bits ^ (bits >> shift)) * factor) & _MASK
    return bits ^ (bits >> _LAST_SHIFT)


def _signed(bits: int) -> int:
    """The whole number of 64 bits with a sign that has the same bits; more bits are cut off."""
    bits &= _MASK
    return bits - 2**64 if bits >= 2**63 else bits
