"""Pairs that stand further up already, found in hashes: memory is some numbers a pair, whatever the texts."""

import numpy as np
from numpy.typing import NDArray

from transformer_mt.checking.faults.rules import BITS


def duplicate_flags(
    keys: NDArray[np.uint64], is_there: NDArray[np.bool_], is_sound: NDArray[np.bool_]
) -> NDArray[np.uint32]:
    """The bits of each pair. keys: uint64 (3, pairs), hashes of the pair, of its letters, of its source. Pairs that are
    not there, such as blank ones, are no duplicates. A pair has the letters of an earlier one that is sound: of another
    one it may be the better form, and both would be taken out.
    """
    places = np.flatnonzero(is_there)
    flags = np.zeros(len(is_there), np.uint32)
    exact = _first_place(keys[0, places]) != np.arange(len(places))
    letters = keys[1, places]
    sound = np.flatnonzero(is_sound[places])
    first_sound = np.full(len(places), len(places))
    first_with_letters = _first_place(letters)
    np.minimum.at(first_sound, first_with_letters[sound], sound)
    same_letters = (first_sound[first_with_letters] < np.arange(len(places))) & ~exact
    flags[places[exact]] |= BITS["duplicate"]
    flags[places[same_letters]] |= BITS["same_letters"]
    first = _first_place(keys[2, places])
    several = (letters[first] != letters) & ~exact & ~same_letters
    flags[places[several]] |= BITS["several_targets"]
    return flags


def _first_place(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each key the place at which it stands first."""
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return first[which]
