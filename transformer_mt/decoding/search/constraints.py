"""Which constraints a hypothesis has met, kept up token by token for all hypotheses of a batch at once.

A constraint is a phrase that a translation must hold. It may be written in several ways, each a sequence of tokens. No
two constraints share a token, so that a phrase that is asked for twice stands there twice.

All partial matches are followed as bits (the shift-and algorithm of Baeza-Yates and Gonnet 1992), because a phrase may
begin within a match that fails later. A phrase that is complete is `held` for as long as a longer one, which began no
later, may still be completed: "casa" becomes "casa grande". It also waits for the next token, which may go on with its
last word: "cat" is not met by "cats".
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from transformer_mt.config.special_ids import BOS_ID
from transformer_mt.decoding.search.rules import Demand, WordEdges

_NO_TOKEN = -1


@dataclass(frozen=True)
class Progress:
    """How far hypotheses are, (sentences, hypotheses, ...).

    begun (.., writings, length): place j tells whether the last j + 1 tokens are the first of a writing. met (..,
    constraints). held (..): the writing that is complete and waits, -1 for none. behind (..): the tokens after it.
    """

    begun: Tensor
    met: Tensor
    held: Tensor
    behind: Tensor

    def at(self, hypotheses: Tensor) -> "Progress":
        """The progress of some hypotheses of each sentence (sentences, any)."""
        places = torch.arange(len(hypotheses), device=hypotheses.device)[:, None]
        return Progress(*(getattr(self, field.name)[places, hypotheses] for field in fields(self)))

    def of_sentences(self, sentences: Tensor) -> "Progress":
        """The progress of some sentences (any,)."""
        return Progress(*(getattr(self, field.name)[sentences] for field in fields(self)))


class Constraints:
    """The constraints of the sentences of a batch. Sentences have as many places as those with the most, some empty."""

    def __init__(self, demands: Sequence[Demand], ordered: bool, edges: WordEdges, device: torch.device) -> None:
        """ordered: each constraint stands behind the one before it."""
        self._ordered = ordered
        self._num = max(1, *(len(demand.constraints) for demand in demands))
        rows = [
            [(group, writing) for group, phrase in enumerate(demand.constraints) for writing in phrase]
            for demand in demands
        ]
        longest = max((len(writing.tokens) for row in rows for _, writing in row), default=1)
        width = max(1, *map(len, rows))
        shape = len(demands), width
        tokens = torch.full((*shape, longest), _NO_TOKEN)
        lengths, groups = torch.zeros(shape, dtype=torch.long), torch.full(shape, self._num)
        after_break, whole = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        costs = torch.zeros(len(demands), self._num + 1, dtype=torch.long)  # the last is that of empty places
        for i, row in enumerate(rows):
            for k, (group, writing) in enumerate(row):
                lengths[i, k], groups[i, k] = len(writing.tokens), group
                tokens[i, k, : len(writing.tokens)] = torch.tensor(writing.tokens)
                after_break[i, k], whole[i, k] = writing.after_break, writing.ends_in_word
            for group, phrase in enumerate(demands[i].constraints):
                # What stands after a break only cannot always be written next.
                costs[i, group] = min(len(w.tokens) for w in phrase if not w.after_break)
        self._tokens, self._lengths, self._groups = tokens.to(device), lengths.to(device), groups.to(device)
        self._after_break, self._whole = after_break.to(device), whole.to(device)
        self._costs = costs.to(device)
        self._continuing, self._ending_within = _table(edges.continuing, device), _table(edges.ending_within, device)
        self._places = torch.arange(1, longest + 1, device=device)
        self.num_tokens = self._costs.sum(dim=1)  # of all constraints of a sentence (sentences,)

    def of_sentences(self, sentences: Tensor) -> "Constraints":
        """Those of some sentences (any,)."""
        some = object.__new__(Constraints)
        some.__dict__.update(self.__dict__)
        for name in ("_tokens", "_lengths", "_groups", "_after_break", "_whole", "_costs", "num_tokens"):
            setattr(some, name, getattr(self, name)[sentences])
        return some

    def begin(self) -> Progress:
        """One hypothesis a sentence, without tokens."""
        num, width, longest = self._tokens.shape
        device = self._tokens.device
        return Progress(
            torch.zeros(num, 1, width, longest, dtype=torch.bool, device=device),
            torch.zeros(num, 1, self._num, dtype=torch.bool, device=device),
            torch.full((num, 1), -1, device=device),
            torch.zeros(num, 1, dtype=torch.long, device=device),
        )

    def advance(self, was: Progress, last: Tensor, tokens: Tensor) -> Progress:
        """Hypotheses whose last tokens are `last`, extended by `tokens`, both (sentences, hypotheses)."""
        goes_on = self._of_held(self._whole, was) & (was.behind == 0) & _look_up(self._continuing, tokens)
        held = was.held.masked_fill(goes_on, -1)
        behind = was.behind + 1
        begun = torch.cat((self._may_begin(last)[..., None], was.begun[..., :-1]), dim=3)
        begun &= self._tokens[:, None] == tokens[:, :, None, None]
        now = Progress(begun, was.met, held, behind)
        begun &= self._wanted(now)
        # What began no later than the held phrase, and still goes on, is longer. Then the phrase waits.
        end = torch.where(held >= 0, behind + self._of_held(self._lengths, now), 0)
        waits = (begun & (self._places >= end[:, :, None, None])).flatten(2).any(dim=2)
        is_met = (held >= 0) & ~waits
        groups = self._of_held(self._groups, now).masked_fill(~is_met, self._num)
        met = was.met | one_hot(groups, self._num + 1)[..., : self._num].bool()
        begun &= ~(is_met[:, :, None, None] & (self._places > behind[:, :, None, None]))
        begun &= ~self._of_writings(met)[..., None]
        held = held.masked_fill(is_met, -1)
        return self._hold_longest(begun, met, held, behind, end)

    def _hold_longest(self, begun: Tensor, met: Tensor, held: Tensor, behind: Tensor, end: Tensor) -> Progress:
        """Hold the longest phrase that is complete now, unless another one is held that began before it."""
        lengths = self._lengths[:, None]
        last = (lengths - 1).clamp(min=0)[..., None].expand(-1, begun.size(1), -1, -1)
        is_complete = begun.gather(3, last).squeeze(3) & ((held < 0)[:, :, None] | (lengths >= end[:, :, None]))
        longest, writing = (lengths * is_complete).max(dim=2)
        found = longest > 0
        return Progress(begun, met, torch.where(found, writing, held), behind.masked_fill(found, 0))

    def missing(self, progress: Progress) -> Tensor:
        """How many tokens hypotheses must still write at least to meet all constraints (sentences, hypotheses). None
        where all are met, in which case they may end.
        """
        unmet = (self._costs[:, None, :-1] * ~progress.met).sum(dim=2)
        costs, held = self._of_writings(self._costs), progress.held
        begun = progress.begun & (self._places < self._lengths[:, None, :, None])
        gains = (costs - self._lengths)[:, None, :, None] + self._places
        gains = torch.where(begun, gains, 0).clamp(min=0)
        is_behind = self._is_behind(progress)
        of_others = (self._groups[:, None] != self._of_held(self._groups, progress)[:, :, None]) | (held < 0)[..., None]
        beside = (gains * is_behind * of_others[..., None]).flatten(2).amax(dim=2)
        instead = (gains * ~is_behind).flatten(2).amax(dim=2)
        gain_of_held = torch.where(held >= 0, self._of_held(costs, progress), 0)
        return unmet - torch.maximum(gain_of_held + beside, instead)

    def next_tokens(self, progress: Progress, last: Tensor) -> Tensor:
        """The tokens with which phrases begin and go on, (sentences, hypotheses, 2 * writings); -1 in the place of one
        that does neither.
        """
        first = self._tokens[:, None, :, 0]
        begins = self._wanted(progress, begins=True).squeeze(3) & self._may_begin(last)
        begun = progress.begun & (self._places < self._lengths[:, None, :, None])
        longest = (begun * self._places).amax(dim=3)
        following = self._tokens[:, None].expand(-1, longest.size(1), -1, -1).gather(3, longest[..., None]
            .clamp(max=self._tokens.size(2) - 1)).squeeze(3)  # fmt: skip
        return torch.cat((torch.where(begins, first, -1), torch.where(longest > 0, following, -1)), dim=2)

    def unmet(self, progress: Progress, sentence: int, hypothesis: int) -> list[int]:
        """The numbers of the constraints of a sentence that one of its hypotheses has not met, counted from 0."""
        met, held = progress.met[sentence, hypothesis].tolist(), int(progress.held[sentence, hypothesis])
        if held >= 0:
            met[int(self._groups[sentence, held])] = True
        return [i for i, is_met in enumerate(met) if not is_met and self._costs[sentence, i] > 0]

    def _may_begin(self, last: Tensor) -> Tensor:
        """Whether each writing may begin behind these tokens (sentences, hypotheses, writings)."""
        within = _look_up(self._ending_within, last)
        return ~(self._after_break[:, None] & within[:, :, None])

    def _wanted(self, progress: Progress, begins: bool = False) -> Tensor:
        """Whether each writing counts (sentences, hypotheses, writings, 1 or length): its constraint is not met and, of
        those that are ordered, the next one. With `begins`, whether it may begin with the next token.
        """
        groups = self._groups[:, None]
        held = progress.held >= 0
        if not self._ordered:
            is_held = held[..., None] & (groups == self._of_held(self._groups, progress)[..., None])
            unmet = ~self._of_writings(progress.met)
            return (unmet & ~is_held if begins else unmet)[..., None]
        following = progress.met.sum(dim=2)[:, :, None]
        after_held = held[:, :, None] & (groups == following + 1)
        if begins:
            return (torch.where(held[:, :, None], after_held, groups == following) & (groups < self._num))[..., None]
        return (groups == following)[..., None] | (after_held[..., None] & self._is_behind(progress))

    def _is_behind(self, progress: Progress) -> Tensor:
        """Whether what has begun stands behind the held phrase, if there is one (sentences, hypotheses, 1, length)."""
        free = (progress.held < 0)[:, :, None, None]
        return free | (self._places <= progress.behind[:, :, None, None])

    def _of_writings(self, of_constraints: Tensor) -> Tensor:
        """(sentences, [hypotheses,] constraints) -> (.., writings); 0 or False for empty places."""
        if of_constraints.dim() == 2:
            return of_constraints.gather(1, self._groups)
        padded = torch.cat((of_constraints, torch.zeros_like(of_constraints[:, :, :1])), dim=2)
        return padded.gather(2, self._groups[:, None].expand(-1, padded.size(1), -1))

    def _of_held(self, of_writings: Tensor, progress: Progress) -> Tensor:
        """What a table (sentences, writings) says of the held writings (sentences, hypotheses); if none is held, of
        any.
        """
        found = of_writings.gather(1, progress.held.clamp(min=0))
        return found & (progress.held >= 0) if found.dtype == torch.bool else found


def missing_after(demand: Demand, ordered: bool, edges: WordEdges) -> int:
    """How many tokens of its constraints a demand takes after its prefix."""
    if not demand.prefix:
        return demand.tokens_of_constraints
    constraints = Constraints([demand], ordered, edges, torch.device("cpu"))
    progress, last = constraints.begin(), torch.tensor([[BOS_ID]])
    for token in demand.prefix:
        progress, last = constraints.advance(progress, last, torch.tensor([[token]])), torch.tensor([[token]])
    return int(constraints.missing(progress))


def _table(ids: Sequence[int], device: torch.device) -> Tensor:
    """Which ids are of these; the last place stands for all ids from there on, which are not."""
    table = torch.zeros(max(ids, default=-1) + 2, dtype=torch.bool)
    table[list(ids)] = True
    return table.to(device)


def _look_up(table: Tensor, tokens: Tensor) -> Tensor:
    return table[tokens.clamp(max=len(table) - 1)]
