"""What a decoder remembers between steps. Owned by the caller, never by a module.

Rows are the hypotheses being extended: those of one sentence lie together, equally many for each sentence. The
memory's keys and values are kept once a sentence; the target's once a row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class LayerCache:
    """One decoder layer: target keys and values (rows, num_kv_heads, length, head_dim), None before the first token;
    memory keys and values (sentences, num_kv_heads, src_len, head_dim).
    """

    memory_k: Tensor
    memory_v: Tensor
    k: Tensor | None = None
    v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add one position, (rows, num_kv_heads, 1, head_dim) each, and return all of them so far."""
        self.k = k if self.k is None else torch.cat((self.k, k), dim=2)
        self.v = v if self.v is None else torch.cat((self.v, v), dim=2)
        return self.k, self.v


@dataclass
class DecoderCache:
    """All layers, the source's padding mask (sentences, 1, 1, src_len), and how many target tokens were fed."""

    layers: list[LayerCache]
    src_mask: Tensor
    length: int = 0

    @property
    def num_sentences(self) -> int:
        return self.src_mask.size(0)

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """Let new row i continue what old row index[i] holds. index (new_rows,), any number a sentence.

        `sentences` (kept,) are the old sentences that the new rows belong to, in order; None keeps all.
        """
        for layer in self.layers:
            if layer.k is not None and layer.v is not None:
                layer.k, layer.v = layer.k.index_select(0, index), layer.v.index_select(0, index)
            if sentences is not None:
                layer.memory_k = layer.memory_k.index_select(0, sentences)
                layer.memory_v = layer.memory_v.index_select(0, sentences)
        if sentences is not None:
            self.src_mask = self.src_mask.index_select(0, sentences)
