"""The rows of a greedy search, which a step changes where they lie: so a GPU can repeat the choice of a token, together
with the step before it, without Python.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.fast_layers.find_kernels import kernels_for
from transformer_mt.decoding.search.top_tokens import LONG_BLOCK, largest_token, not_a_number, survey


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen. Without `scored` no probability is worked out, which saves passes over the
    vocabulary.
    """

    allow_unk: bool
    scored: bool


@dataclass
class GreedyRows:
    """One hypothesis a row, all of `length` (1,) tokens so far.

    tokens (rows,) are the newest, `history` (rows, room) holds all of them without BOS, and totals (rows,) are their
    log-probabilities. `limits` (rows,) are the largest lengths, and `is_over` (rows,) says which rows have ended: they
    go on with EOS as long as they are there.
    """

    tokens: Tensor
    limits: Tensor
    totals: Tensor
    is_over: Tensor
    history: Tensor
    length: Tensor

    @classmethod
    def begin(cls, limits: Tensor, room: int, scored: bool) -> Self:
        """Rows of BOS alone."""
        return cls(
            torch.full_like(limits, BOS_ID),
            limits,
            torch.full(limits.shape, 0.0 if scored else torch.nan, device=limits.device),
            torch.zeros_like(limits, dtype=torch.bool),
            limits.new_empty(len(limits), room),
            limits.new_zeros(1),
        )

    def choose(self, logits: Tensor, choice: Choice, forbid: Callable[[Tensor], None] | None = None) -> Tensor:
        """Add the likeliest token to each row, logits (rows, vocab_size) -> (2,): how many rows go on, and of how many
        the logits are not numbers.

        `forbid` puts -inf into logits, in place; what it forbids keeps its share of the probability.
        """
        logits = logits.float()
        self.length += 1
        kernels = kernels_for(logits) if forbid is None and logits.is_contiguous() else None
        if kernels is not None:
            return kernels.choose(logits, self._by_row(), self.length, choice.allow_unk, choice.scored)
        totals = maxima = None
        if choice.scored:
            totals, maxima = survey(logits[:, None], self.totals[:, None], LONG_BLOCK)
        if forbid is not None:
            forbid(logits)
            maxima = None
        values, tokens = largest_token(logits, choice.allow_unk, None if maxima is None else maxima.squeeze(1))
        tokens = tokens.masked_fill(self.is_over | (self.limits <= self.length), EOS_ID)
        is_bad = values.isnan() if totals is None else totals.are_bad
        if totals is not None:
            values = totals(logits.gather(1, tokens[:, None])[:, None]).flatten()
            self.totals.copy_(torch.where(self.is_over, self.totals, values))
        num_bad = (is_bad & ~self.is_over).sum()
        self.tokens.copy_(tokens)
        # Not `index_copy_`, which old versions of torch have not on Apple's mps.
        self.history.scatter_(1, (self.length - 1).expand(len(tokens), 1), tokens[:, None])
        self.is_over.copy_(tokens == EOS_ID)
        return torch.stack(((~self.is_over).sum(), num_bad))

    def first(self, num_rows: int) -> Self:
        """The first rows, in the same memory."""
        return type(self)(**{name: tensor[:num_rows] for name, tensor in self._by_row().items()}, length=self.length)

    def move_to(self, memory: "GreedyRows") -> None:
        """Go on in the first rows of this memory, the others of which count as ended."""
        memory.is_over.fill_(True)
        memory.length.copy_(self.length)
        self.length = memory.length
        for name, tensor in self._by_row().items():
            place = getattr(memory, name)[: len(tensor)]
            place[tuple(map(slice, tensor.shape))] = tensor  # the history may have less room here
            setattr(self, name, place)

    def keep(self, kept: Tensor, length: int) -> None:
        """Go on with the rows `kept` in the memory of the first ones; the others count as ended. `length` is that of
        all, as a number, since nothing behind it is worth moving.
        """
        for name, tensor in self._by_row().items():
            used = tensor[:, :length] if name == "history" else tensor
            used[: len(kept)] = used.index_select(0, kept)
            setattr(self, name, tensor[: len(kept)])
            if name == "is_over":
                tensor[len(kept) :] = True

    def _by_row(self) -> dict[str, Tensor]:
        """What has a row for each hypothesis, by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "length"}


@dataclass(frozen=True)
class Report:
    """What `GreedyRows.choose` said, kept until it is read: the next step may write where it stood."""

    numbers: Tensor
    is_there: torch.cuda.Event | None

    @classmethod
    def of(cls, said: Tensor) -> "Report":
        """Begins to copy it, and does not wait."""
        if said.device.type != "cuda":
            return cls(said.clone(), None)
        numbers = said.to("cpu", non_blocking=True)  # into pinned memory
        is_there = torch.cuda.Event()
        is_there.record(torch.cuda.current_stream(said.device))
        return cls(numbers, is_there)

    def num_live(self) -> int:
        """How many rows go on. Waits for the step, and raises UserError where logits were no numbers."""
        if self.is_there is not None:
            self.is_there.synchronize()
        num_live, num_bad = self.numbers.tolist()
        if num_bad:
            raise not_a_number()
        return num_live


@runtime_checkable
class ChoosesItself(Protocol):
    """A decoder whose steps can choose the next tokens as well."""

    def choosing(self, rows: GreedyRows, choice: Choice) -> Callable[[], Tensor]:
        """The steps of a greedy search, whose rows move into the decoder's memory: each call feeds the newest tokens
        and returns what `GreedyRows.choose` does.
        """
        ...
