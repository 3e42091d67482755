"""What a decoder remembers between steps. Owned by the caller, never by a module.

A sentence has one or more rows, the hypotheses being extended; those of one sentence lie together, equally many for
each. Keys and values of what was fed lie in slots of the sentence, one slot a row and step, whichever hypothesis it
belongs to; a row attends to the slots of its own past, as `visible` says. So hypotheses multiply, change places and end
without a key or value being moved. The memory's keys and values are kept once a sentence.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# A CPU's kernels take 16 floats at a time. Keys filled up to a multiple of it, the surplus hidden by the mask, cost a
# half to a quarter of what a few less do.
LANES = 16


def round_up(length: int) -> int:
    """The next multiple of `LANES`."""
    return -(-length // LANES) * LANES


@dataclass
class LayerCache:
    """One decoder layer. Slots: k and v (sentences, num_kv_heads, capacity, head_dim), None before the first. Memory:
    memory_k and memory_v (sentences, num_kv_heads, src_len, head_dim), None where there is no cross-attention. All are
    what the attention's `to_slots` makes of them.
    """

    memory_k: Tensor | None = None
    memory_v: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None

    def write(self, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Fill slots from `start` on with k and v, (sentences, num_kv_heads, new slots, head_dim) each.

        Returns all slots so far, up to a multiple of `LANES`: what is beyond the filled ones is finite.
        """
        end = start + k.size(2)
        width = round_up(end)
        self.k, self.v = (_with_room(old, new, width) for old, new in ((self.k, k), (self.v, v)))
        self.k[:, :, start:end] = k
        self.v[:, :, start:end] = v
        return self.k[:, :, :width], self.v[:, :, :width]

    def keep(self, sentences: Tensor, changed: Tensor) -> None:
        """See `DecoderCache.reorder`; `changed` are the places whose sentence is another one than before."""
        self.memory_k, self.memory_v, self.k, self.v = (
            None if tensor is None else _keep(tensor, sentences, changed)
            for tensor in (self.memory_k, self.memory_v, self.k, self.v)
        )


@dataclass
class DecoderCache:
    """All layers, what a row may attend to, and where it stands.

    memory_mask (sentences, 1, 1, src_len) is the source's padding mask, None without cross-attention. visible
    (sentences, rows, width) and slot_at (sentences or 1, width) are mask and position of each slot, of which
    `num_slots` are in use. next_at (sentences or 1, 1) is the position of the next token; `length` of them were fed.
    """

    layers: list[LayerCache]
    memory_mask: Tensor | None
    visible: Tensor
    slot_at: Tensor
    next_at: Tensor
    num_slots: int = 0
    length: int = 0

    @classmethod
    def empty(
        cls, layers: list[LayerCache], memory_mask: Tensor | None, num_sentences: int, device: torch.device
    ) -> "DecoderCache":
        """No slot in use, one row a sentence, the next token the first."""
        visible = torch.zeros(num_sentences, 1, 0, dtype=torch.bool, device=device)
        slot_at, next_at = (torch.zeros(1, width, dtype=torch.long, device=device) for width in (0, 1))
        return cls(layers, memory_mask, visible, slot_at, next_at)

    @property
    def num_sentences(self) -> int:
        """How many are decoded now; a search leaves out those that are done."""
        return self.visible.size(0)

    def open_slots(self, at: Tensor, visible: Tensor) -> int:
        """Take new slots into use, and return the first of them.

        Their positions are `at` (sentences or 1, new slots). visible (sentences or 1, rows, new slots): who sees them.
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
        """A token for each of the `rows` of a sentence: its position (sentences or 1, 1), and the first of the slots
        that it takes, each seen by no other row.
        """
        at = self.next_at
        own = torch.eye(rows, dtype=torch.bool, device=at.device)[None]
        start = self.open_slots(at.expand(-1, rows), own)
        self.next_at = at + 1
        self.length += 1
        return at, start

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """Let new row i continue what old row index[i] holds. index (new_rows,), any number a sentence.

        `sentences` (kept,) are the old sentences that the new rows belong to, in order; None keeps all. Only where
        sentences[i] is not i is anything moved.
        """
        num_sentences = self.num_sentences if sentences is None else len(sentences)
        # The rows' own order moves nothing but this.
        self.visible = self.visible.flatten(0, 1).index_select(0, index).unflatten(0, (num_sentences, -1))
        if sentences is None:
            return
        changed = (sentences != torch.arange(num_sentences, device=sentences.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.keep(sentences, changed)
        if self.memory_mask is not None:
            self.memory_mask = _keep(self.memory_mask, sentences, changed)
        if len(self.next_at) > 1:  # else every sentence's are the same
            self.slot_at = _keep(self.slot_at, sentences, changed)
            self.next_at = _keep(self.next_at, sentences, changed)


def _with_room(old: Tensor | None, new: Tensor, width: int) -> Tensor:
    """A buffer of at least `width` slots that begins as the old one does, else zeros."""
    if old is not None and old.size(2) >= width:
        return old
    capacity = width if old is None else max(width, 2 * old.size(2))
    grown = new.new_zeros(new.size(0), new.size(1), capacity, new.size(3))
    if old is not None:
        grown[:, :, : old.size(2)] = old
    return grown


def _keep(tensor: Tensor, sentences: Tensor, changed: Tensor) -> Tensor:
    """Rows `sentences` of a tensor, made in its own memory; places not among `changed` have theirs already."""
    if len(changed):
        moved = tensor.index_select(0, sentences[changed])
        if tensor.device.type == "cpu":
            tensor.index_copy_(0, changed, moved)  # whole rows at a time; Apple's mps has it late, and slow
        else:
            tensor[changed] = moved
    return tensor[: len(sentences)]
