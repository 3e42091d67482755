"""The memory of a decoder between steps. A caller owns it, never a module.

A sentence has one or more rows, the hypotheses that are extended. The rows of a sentence lie together, equally many for
each. Every row and step fills one slot of its sentence with a key and a value, whichever hypothesis it belongs to. A
row attends to the slots of its own past, which `visible` marks. So hypotheses multiply, change places and end without
moving a key or value. The keys and values of the encoder's memory are kept once a sentence.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

# A CPU's kernels take 16 floats at a time. A number of keys that is a multiple of it, the surplus hidden by the mask,
# takes a half to a quarter of the time that a few keys less take.
LANES = 16


def round_up(length: int) -> int:
    """The next multiple of `LANES`."""
    return -(-length // LANES) * LANES


class SearchCache(ABC):
    """What a search needs to know of the memory of any model: `length` tokens were fed to each row."""

    length: int

    @abstractmethod
    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """Let new row i continue what old row index[i] holds. index (new_rows,), any number a sentence.

        `sentences` (kept,) are the old sentences that the new rows belong to, in order; None keeps all.
        """


@dataclass
class LayerCache:
    """One decoder layer. Slots: k and v (sentences, num_kv_heads, capacity, head_dim), None before the first. Memory:
    memory_k and memory_v (sentences, num_kv_heads, src_len, head_dim), None where there is no cross-attention. All have
    the form that the attention's `to_slots` gives them.
    """

    memory_k: Tensor | None = None
    memory_v: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None

    def write(self, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Fill slots from `start` on with k and v, (sentences, num_kv_heads, new slots, head_dim) each.

        Returns all slots so far, up to a multiple of `LANES`. Those beyond the filled ones hold finite numbers.
        """
        end = start + k.size(2)
        width = round_up(end)
        self.k, self.v = (_with_room(old, new, width) for old, new in ((self.k, k), (self.v, v)))
        self.k[:, :, start:end] = k
        self.v[:, :, start:end] = v
        return self.k[:, :, :width], self.v[:, :, :width]

    def reserve(self, end: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Buffers of keys and values with room up to the slot `end`, which have the form of `like` otherwise."""
        if self.k is None or self.v is None or self.k.size(2) < end:
            width = round_up(end)
            self.k, self.v = (_with_room(old, like, width) for old in (self.k, self.v))
        return self.k, self.v

    def keep(self, sentences: Tensor, changed: Tensor) -> None:
        """See `DecoderCache.reorder`; `changed` are the places that get another sentence."""
        self.memory_k, self.memory_v, self.k, self.v = (
            None if tensor is None else _keep(tensor, sentences, changed)
            for tensor in (self.memory_k, self.memory_v, self.k, self.v)
        )


@dataclass
class DecoderCache(SearchCache):
    """The caches of all layers, the slots that a row may attend to, and its position.

    memory_bias (sentences, 1, 1, src_len) hides the source's padding, see `masks.as_bias`; None without
    cross-attention. visible (sentences, rows, width) and slot_at (sentences or 1, width) are mask and position of each
    slot, of which `num_slots` are in use. next_at (sentences or 1, 1) is the position of the next token; `length` of
    them were fed.
    """

    layers: list[LayerCache]
    memory_bias: Tensor | None
    visible: Tensor
    slot_at: Tensor
    next_at: Tensor
    num_slots: int = 0
    length: int = 0

    @classmethod
    def empty(
        cls, layers: list[LayerCache], memory_bias: Tensor | None, num_sentences: int, device: torch.device
    ) -> "DecoderCache":
        """A cache without slots in use, with one row a sentence, before the first token."""
        visible = torch.zeros(num_sentences, 1, 0, dtype=torch.bool, device=device)
        slot_at, next_at = (torch.zeros(1, width, dtype=torch.long, device=device) for width in (0, 1))
        return cls(layers, memory_bias, visible, slot_at, next_at)

    @property
    def num_sentences(self) -> int:
        """How many sentences are decoded now; a search drops those that are done."""
        return self.visible.size(0)

    def open_slots(self, at: Tensor, visible: Tensor) -> int:
        """Take new slots into use, and return the first of them.

        Their positions are `at` (sentences or 1, new slots). visible (sentences or 1, rows, new slots) says which rows
        see them.
        """
        start = self.num_slots
        self.num_slots += visible.size(2)
        missing = round_up(self.num_slots) - self.visible.size(2)
        if missing > 0 or len(self.slot_at) != len(at):
            self.visible = torch.nn.functional.pad(self.visible, (0, max(0, missing)))
            self.slot_at = torch.nn.functional.pad(self.slot_at.expand(len(at), -1), (0, max(0, missing)))
        self.visible[:, :, start : self.num_slots] = visible
        self.slot_at[:, start : self.num_slots] = at
        return start

    def feed(self, rows: int) -> tuple[Tensor, int]:
        """Take a slot for a new token of each row. Returns the position of these tokens (sentences or 1, 1), and the
        first of the `rows` new slots of a sentence. A row sees its own new slot and no other.
        """
        at = self.next_at
        own = torch.eye(rows, dtype=torch.bool, device=at.device)[None]
        start = self.open_slots(at.expand(-1, rows), own)
        self.next_at = at + 1
        self.length += 1
        return at, start

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """See `SearchCache`. Only sentences that change their place are moved."""
        num_sentences = self.num_sentences if sentences is None else len(sentences)
        # The order of the rows stands here alone.
        self.visible = self.visible.flatten(0, 1).index_select(0, index).unflatten(0, (num_sentences, -1))
        if sentences is None:
            return
        changed = (sentences != torch.arange(num_sentences, device=sentences.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.keep(sentences, changed)
        if self.memory_bias is not None:
            self.memory_bias = _keep(self.memory_bias, sentences, changed)
        if len(self.next_at) > 1:  # otherwise all sentences share one row
            self.slot_at = _keep(self.slot_at, sentences, changed)
            self.next_at = _keep(self.next_at, sentences, changed)


def _with_room(old: Tensor | None, new: Tensor, width: int) -> Tensor:
    """A buffer of at least `width` slots: the old ones, then zeros."""
    if old is not None and old.size(2) >= width:
        return old
    capacity = width if old is None else max(width, 2 * old.size(2))
    grown = new.new_zeros(new.size(0), new.size(1), capacity, new.size(3))
    if old is not None:
        grown[:, :, : old.size(2)] = old
    return grown


def _keep(tensor: Tensor, sentences: Tensor, changed: Tensor) -> Tensor:
    """Rows `sentences` of a tensor, written into its own memory. Only the places `changed` get another row."""
    if len(changed):
        moved = tensor.index_select(0, sentences[changed])
        if tensor.device.type == "cpu":
            # Whole rows at a time. Old versions of torch lack it on Apple's mps, where it is slow in the others.
            tensor.index_copy_(0, changed, moved)
        else:
            tensor[changed] = moved
    return tensor[: len(sentences)]
