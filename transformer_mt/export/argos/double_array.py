"""A double-array trie in the layout of Darts-clone, which SentencePiece reads: keys of bytes, each with a number.

A unit of 32 bits holds the label of a node, an offset, and whether a key ends there. The children of the node at p lie
at p XOR offset XOR label, and its number at p XOR offset, with the highest bit set.
"""

import struct
from collections.abc import Mapping

_IS_LEAF, _HAS_LEAF, _BLOCK = 1 << 31, 1 << 8, 256


def double_array(values: Mapping[bytes, int]) -> bytes:
    """The array as little-endian units, a multiple of 1024 bytes. No key is empty or holds a zero byte."""
    root: dict[int, dict] = {}
    for key in values:
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
    return _Layout(values).of(root)


class _Layout:
    """Nodes are laid one after the other where their children find room."""

    def __init__(self, values: Mapping[bytes, int]) -> None:
        self.values = values
        self.units = [0] * _BLOCK
        self.taken = bytearray(_BLOCK)
        self.bases: set[int] = set()
        self.cursors: dict[int, int] = {}

    def of(self, root: dict[int, dict]) -> bytes:
        """The units of the array, little-endian, of a tree whose nodes map a byte to the node below it."""
        self.taken[0] = 1
        waiting = [(0, b"", root)]
        while waiting:
            place, key, node = waiting.pop()
            labels = sorted(node)
            ends = key in self.values
            base = self._room_for(place, [0, *labels] if ends else labels)
            self.bases.add(base)
            offset = place ^ base
            assert offset < 1 << 21, "the array is small"
            self.units[place] |= offset << 10 | (_HAS_LEAF if ends else 0)
            for label in [0, *labels] if ends else labels:
                self.taken[base ^ label] = 1
                self.units[base ^ label] = label if label else self.values[key] | _IS_LEAF
            waiting += [(base ^ label, key + bytes([label]), node[label]) for label in labels]
        return struct.pack(f"<{len(self.units)}I", *self.units)

    def _room_for(self, parent: int, labels: list[int]) -> int:
        """A base that nobody has, whose places for these labels are free. An offset of zero would be none.

        The search goes on where the last one for so many labels ended, since looking everywhere would take long.
        """
        number = len(labels)
        place = self.cursors.get(number, 1)
        while True:
            if place >= len(self.units):
                self.units += [0] * _BLOCK
                self.taken += bytes(_BLOCK)
            base = place ^ labels[0]
            is_new = base != parent and base not in self.bases
            if is_new and not any(self.taken[base ^ label] for label in labels):
                self.cursors[number] = place
                return base
            place += 1
