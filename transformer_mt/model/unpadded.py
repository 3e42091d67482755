"""A batch without its padding: all tokens in one row, one sentence after another, and the mask between sentences.

Training runs its layers over this row, where there is a kernel of attention for it. Padding costs nothing then, and the
products of all batches have few shapes. A CPU's library of products keeps some memory for each shape. That memory lies
between the tensors, and would cut freed memory into pieces. A GPU's compiler makes one step for all of them.
"""

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.masks import is_real

ROWS = 64  # the row is filled up to a multiple of so many positions


@dataclass(frozen=True)
class Tokens:
    """The tokens that a stack is given."""

    ids: Tensor  # (batch, length), or patches (batch, length, pixels)
    at: Tensor  # (batch or 1, length), their positions
    real: Tensor  # (batch, length), False where there is padding
    factors: Tensor | None = field(default=None, kw_only=True)  # (batch, length), of their embeddings; None: 1


@dataclass(frozen=True)
class Unpadded(Tokens):
    """All tokens of some sentences as one row (1, num_rows), filled up with PAD to a multiple of `ROWS`."""

    lengths: Tensor  # (num_sentences,)
    num_tokens: int
    longest: int  # no sentence has more tokens

    def sentences(self) -> Tensor:
        """(num_tokens,): of each token, which sentence it is of."""
        return torch.arange(len(self.lengths), device=self.lengths.device).repeat_interleave(self.lengths)

    @classmethod
    def of(cls, ids: Tensor, places: Tensor | None = None, factors: Tensor | None = None) -> "Unpadded":
        """ids (or patches) and factors (num_sentences, longest), padded on the right. `places` (num_tokens,) are those
        of the tokens in ids.flatten(), where the caller knows them; to count them on a GPU means to wait for it.
        """
        real = is_real(ids)
        lengths = real.sum(dim=1)
        # A CPU's passes have no use for columns of padding; a GPU would have to be asked how many there are.
        longest = int(lengths.max()) if ids.device.type == "cpu" else ids.size(1)
        if places is None:
            places = real.flatten().nonzero().flatten()
        surplus = 0, -len(places) % ROWS
        of_pixels = (0, 0) * (ids.dim() - 2)
        return cls(
            F.pad(ids.flatten(0, 1)[places], (*of_pixels, *surplus), value=PAD_ID)[None],
            F.pad(places % ids.size(1), surplus)[None],
            F.pad(torch.ones(1, len(places), dtype=torch.bool, device=ids.device), surplus),
            lengths,
            len(places),
            longest,
            factors=None if factors is None else F.pad(factors.flatten()[places], surplus)[None],
        )

    def filled(self, num_rows: int, num_sentences: int, longest: int) -> "Unpadded":
        """The same with more rows of padding, sentences of nothing, and a longest one that may be longer."""
        rows, sentences = (0, num_rows - self.ids.size(1)), (0, num_sentences - len(self.lengths))
        return replace(
            self,
            ids=F.pad(self.ids, (*(0, 0) * (self.ids.dim() - 2), *rows), value=PAD_ID),
            at=F.pad(self.at, rows),
            real=F.pad(self.real, rows),
            lengths=F.pad(self.lengths, sentences),
            longest=longest,
            factors=None if self.factors is None else F.pad(self.factors, rows),
        )


@dataclass(frozen=True)
class BlockDiagonal:
    """The mask of unpadded tokens. A query sees keys of its own sentence: all of them, or with `causal` those up to
    its own place.
    """

    blocks: Tensor  # (num_sentences, 4) int64: the first query, the number of queries, the first key, that of keys
    most: tuple[int, int]  # no sentence has more queries, nor more keys
    causal: bool = False

    @classmethod
    def between(cls, queries: Unpadded, keys: Unpadded, causal: bool = False) -> "BlockDiagonal":
        """Of the same sentences in two languages, or in one."""
        return cls.of(queries.lengths, keys.lengths, causal, (queries.longest, keys.longest))

    @classmethod
    def of(
        cls, queries: Tensor, keys: Tensor, causal: bool = False, most: tuple[int, int] | None = None
    ) -> "BlockDiagonal":
        """By lengths (num_sentences,). `most` as in the class; by default the longest are looked for."""
        # Each sum by itself: a GPU adds up a column of several ten times as slowly.
        columns = (queries.cumsum(dim=0) - queries, queries, keys.cumsum(dim=0) - keys, keys)
        return cls(torch.stack(columns, dim=1), most or (int(queries.max()), int(keys.max())), causal)
