"""What a tokenizer remembers: the ids of the chunks of text that it met, and what stands behind the ids."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_SLOT_BYTES = 64  # about what a dict takes for an entry
# Many texts are cut into chunks at once. This stands after each text: half of a surrogate pair, which no text holds.
END, END_ID = "\ud800", -1


class ChunkMemory:
    """The ids of chunks, as the bytes of their int32s. Nothing is taken out of it: another thread may be reading it."""

    def __init__(self, tags: dict[str, int]) -> None:
        self.num_bytes = 0
        self._ids = {END: np.array([END_ID], np.int32).tobytes()}
        for tag, i in tags.items():
            self.add(tag, [i])

    def missing(self, chunks: list[str]) -> list[str]:
        """The chunks that are new, each once."""
        return list(set(chunks).difference(self._ids))

    def add(self, chunk: str, ids: list[int]) -> None:
        """Remember the ids of a chunk."""
        self._ids[chunk] = packed = np.array(ids, np.int32).tobytes()
        self.num_bytes += sys.getsizeof(chunk) + sys.getsizeof(packed) + _SLOT_BYTES

    def ids_of(self, chunks: list[str]) -> bytes:
        """The ids of the chunks, one after the other. KeyError where one of them is new."""
        return b"".join(map(self._ids.__getitem__, chunks))


class Entry(NamedTuple):
    """What stands behind an id: in the vocabulary, nothing for an id that is none; and as a person reads it."""

    token: str
    readable: str


class Entries(dict[int, Entry]):
    """The entries by their ids, looked up once each: a translation has few different ones, and many of each."""

    def __init__(self, look_up: Callable[[int], Entry]) -> None:
        super().__init__()
        self._look_up = look_up

    def __missing__(self, i: int) -> Entry:
        entry = self[i] = self._look_up(i)
        return entry

    def __reduce__(self) -> tuple[type["Entries"], tuple[Callable[[int], Entry]]]:
        return Entries, (self._look_up,)  # a copy begins anew
