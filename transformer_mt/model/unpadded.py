"""A batch without its padding: all tokens in one row, one sentence after another, and the mask between sentences.

Training on a CPU runs its layers over this row. Padding costs nothing then, and the products of all batches have few
shapes. The library that computes products keeps some memory for each shape. That memory lies between the tensors, and
would cut freed memory into pieces.
"""

from dataclasses import dataclass, field
from functools import cached_property

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

    def sentences(self) -> Tensor:
        """(num_tokens,): of each token, which sentence it is of."""
        return torch.arange(len(self.lengths)).repeat_interleave(self.lengths)

    @classmethod
    def of(cls, ids: Tensor, places: Tensor | None = None, factors: Tensor | None = None) -> "Unpadded":
        """ids (or patches) and factors (num_sentences, longest), padded on the right. `places` (num_tokens,) are those
        of the tokens in ids.flatten(), where the caller knows them.
        """
        num_sentences, longest = ids.shape[:2]
        if places is None:
            places = is_real(ids).flatten().nonzero().flatten()
        surplus = 0, -len(places) % ROWS
        of_pixels = (0, 0) * (ids.dim() - 2)
        return cls(
            F.pad(ids.flatten(0, 1)[places], (*of_pixels, *surplus), value=PAD_ID)[None],
            F.pad(places % longest, surplus)[None],
            F.pad(torch.ones(1, len(places), dtype=torch.bool), surplus),
            torch.bincount(places // longest, minlength=num_sentences),
            len(places),
            factors=None if factors is None else F.pad(factors.flatten()[places], surplus)[None],
        )


@dataclass(frozen=True)
class BlockDiagonal:
    """The mask of unpadded tokens. A query sees keys of its own sentence: all of them, or with `causal` those up to
    its own place. The lengths are (num_sentences,).
    """

    query_lengths: Tensor
    key_lengths: Tensor
    causal: bool = False

    @cached_property
    def blocks(self) -> Tensor:
        """(num_sentences, 4) int64: the first query, the number of queries, the first key, the number of keys."""
        lengths = torch.stack((self.query_lengths, self.key_lengths), dim=1)
        return torch.stack((lengths.cumsum(dim=0) - lengths, lengths), dim=2).flatten(1)

    @cached_property
    def most(self) -> tuple[int, int]:
        """The most queries and the most keys of a sentence."""
        return int(self.query_lengths.max()), int(self.key_lengths.max())
