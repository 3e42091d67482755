"""Which constraints a hypothesis has met, kept up token by token for all hypotheses of a batch at once.

A constraint is a phrase that a translation must hold. It may be written in several ways, each a sequence of tokens. No
constraint counts within another one, so that a phrase that is asked for twice stands there twice. One may begin within
another that ends before it.

All partial matches are followed as bits (the shift-and algorithm of Baeza-Yates and Gonnet 1992), because a phrase may
begin within a match that fails later. A phrase that is complete is `held` for as long as a longer one, which began no
later, may still be completed: "casa" becomes "casa grande". It also waits for the next token, which may go on with its
last word: "cat" is not met by "cats".

Only one way to place the constraints is followed. Where they touch, a text may hold all of them in another way, which
`placements.py` finds by the tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from transformer_mt.config.special_ids import BOS_ID
from transformer_mt.decoding.search.placements import Placements, num_shared
from transformer_mt.decoding.search.rules import Demand, WordEdges

_NO_TOKEN = -1
_OF_SENTENCES = (
    "_tokens", "_lengths", "_groups", "_after_break", "_whole", "_costs", "_sizes", "_begun_sizes", "num_tokens",
    "num_shared",
)  # fmt: skip


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
        self.placements = Placements(demands, ordered, edges)
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
        spaces = torch.zeros(shape, dtype=torch.long)
        after_break, whole = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        costs = torch.zeros(len(demands), self._num + 1, dtype=torch.long)  # the last is that of empty places
        for i, row in enumerate(rows):
            for k, (group, writing) in enumerate(row):
                lengths[i, k], groups[i, k] = len(writing.tokens), group
                tokens[i, k, : len(writing.tokens)] = torch.tensor(writing.tokens)
                spaces[i, k] = writing.num_spaces
                after_break[i, k], whole[i, k] = writing.after_break, writing.ends_in_word
            for group, phrase in enumerate(demands[i].constraints):
                # What stands after a break only cannot always be written next.
                costs[i, group] = min(len(w.tokens) for w in phrase if not w.after_break)
        self._tokens, self._lengths, self._groups = tokens.to(device), lengths.to(device), groups.to(device)
        self._after_break, self._whole = after_break.to(device), whole.to(device)
        self._costs = costs.to(device)
        self._continuing, self._ending_within = _table(edges.continuing, device), _table(edges.ending_within, device)
        self._places = torch.arange(1, longest + 1, device=device)
        # Tokens without the spaces before them: of whole writings, and of each beginning.
        self._sizes = (lengths - spaces).to(device)
        self._begun_sizes = self._places - spaces.to(device)[:, :, None]
        self.num_tokens = self._costs.sum(dim=1)  # of all constraints of a sentence (sentences,)
        self.num_shared = torch.tensor([num_shared(demand) for demand in demands], device=device)  # of these at most

    def of_sentences(self, sentences: Tensor) -> "Constraints":
        """Those of some sentences (any,)."""
        some = object.__new__(Constraints)
        some.__dict__.update(self.__dict__)
        for name in _OF_SENTENCES:
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
        # What began no later than the held phrase, and still goes on, is longer. Then the phrase waits.
        end = torch.where(held >= 0, behind + self._of_held(self._sizes, now), 0)
        is_longer = self._begun_sizes[:, None] >= end[:, :, None, None]
        waits = (self._counting(now) & is_longer).flatten(2).any(dim=2)
        is_met = (held >= 0) & ~waits
        groups = self._of_held(self._groups, now).masked_fill(~is_met, self._num)
        met = was.met | one_hot(groups, self._num + 1)[..., : self._num].bool()
        if self._ordered:  # else there are none, or the phrase would wait
            begun &= ~(is_met[:, :, None, None] & is_longer)
        begun &= ~self._of_writings(met)[..., None]
        held = held.masked_fill(is_met, -1)
        return self._hold_longest(begun, met, held, behind, end)

    def _hold_longest(self, begun: Tensor, met: Tensor, held: Tensor, behind: Tensor, end: Tensor) -> Progress:
        """Hold the longest phrase that is complete now, unless another one is held that began before it."""
        lengths, sizes = self._lengths[:, None], self._sizes[:, None]
        last = (lengths - 1).clamp(min=0)[..., None].expand(-1, begun.size(1), -1, -1)
        counting = self._counting(Progress(begun, met, held, behind))
        is_complete = counting.gather(3, last).squeeze(3) & ((held < 0)[:, :, None] | (sizes >= end[:, :, None]))
        longest, writing = (lengths * is_complete).max(dim=2)
        found = longest > 0
        return Progress(begun, met, torch.where(found, writing, held), behind.masked_fill(found, 0))

    def missing(self, progress: Progress) -> Tensor:
        """How many tokens hypotheses must still write at least to meet all constraints (sentences, hypotheses). None
        where all are met, in which case they may end.
        """
        unmet = (self._costs[:, None, :-1] * ~progress.met).sum(dim=2)
        costs, held = self._of_writings(self._costs), progress.held
        begun = self._counting(progress) & (self._places < self._lengths[:, None, :, None])
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
        begins = self._may_begin_next(progress) & self._may_begin(last)
        begun = self._counting(progress) & (self._places < self._lengths[:, None, :, None])
        longest = (begun * self._places).amax(dim=3)
        following = self._tokens[:, None].expand(-1, longest.size(1), -1, -1).gather(3, longest[..., None]
            .clamp(max=self._tokens.size(2) - 1)).squeeze(3)  # fmt: skip
        return torch.cat((torch.where(begins, first, -1), torch.where(longest > 0, following, -1)), dim=2)

    def _may_begin(self, last: Tensor) -> Tensor:
        """Whether each writing may begin behind these tokens (sentences, hypotheses, writings)."""
        within = _look_up(self._ending_within, last)
        return ~(self._after_break[:, None] & within[:, :, None])

    def _counting(self, progress: Progress) -> Tensor:
        """What has begun and counts (sentences, hypotheses, writings, length). Of ordered constraints only the next one
        does, and behind a held one that after it.
        """
        if not self._ordered:
            return progress.begun
        groups, following = self._groups[:, None], progress.met.sum(dim=2)[:, :, None]
        after_held = (progress.held >= 0)[:, :, None] & (groups == following + 1)
        return progress.begun & ((groups == following)[..., None] | (after_held[..., None] & self._is_behind(progress)))

    def _may_begin_next(self, progress: Progress) -> Tensor:
        """Whether each writing may begin with the next token, as far as others go (sentences, hypotheses, writings)."""
        groups, held = self._groups[:, None], (progress.held >= 0)[:, :, None]
        if not self._ordered:
            is_held = held & (groups == self._of_held(self._groups, progress)[..., None])
            return ~self._of_writings(progress.met) & ~is_held
        return (groups == progress.met.sum(dim=2)[:, :, None] + held) & (groups < self._num)

    def _is_behind(self, progress: Progress) -> Tensor:
        """Whether what has begun did so after the held phrase, if there is one (sentences, hypotheses, 1, length)."""
        free = (progress.held < 0)[:, :, None, None]
        end = progress.behind + self._of_held(self._sizes, progress)
        return free | (self._begun_sizes[:, None] < end[:, :, None, None])

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
    """How many tokens of its constraints a demand takes after its prefix at least."""
    if not demand.prefix:
        return demand.tokens_of_constraints - num_shared(demand)
    constraints = Constraints([demand], ordered, edges, torch.device("cpu"))
    progress, last = constraints.begin(), torch.tensor([[BOS_ID]])
    for token in demand.prefix:
        progress, last = constraints.advance(progress, last, torch.tensor([[token]])), torch.tensor([[token]])
    return max(0, int(constraints.missing(progress)) - num_shared(demand))


def _table(ids: Sequence[int], device: torch.device) -> Tensor:
    """Which ids are of these; the last place stands for all ids from there on, which are not."""
    table = torch.zeros(max(ids, default=-1) + 2, dtype=torch.bool)
    table[list(ids)] = True
    return table.to(device)


def _look_up(table: Tensor, tokens: Tensor) -> Tensor:
    return table[tokens.clamp(max=len(table) - 1)]
