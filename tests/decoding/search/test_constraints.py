"""What has been met of constraints, against a search through all placements."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID
from transformer_mt.decoding.search.constraints import Constraints
from transformer_mt.decoding.search.rules import Demand, WordEdges, Writing

CPU = torch.device("cpu")
A, B, C, D = 4, 5, 6, 7
Phrases = tuple[tuple[Writing, ...], ...]


def plain(*phrases: tuple[int, ...]) -> Phrases:
    return tuple((Writing(phrase),) for phrase in phrases)


def missing_after(phrases: Phrases, texts: Sequence[tuple[int, ...]], ordered: bool, edges: WordEdges) -> list[Tensor]:
    """What is missing of each text (texts,) before each token and after the last."""
    constraints = Constraints([Demand(constraints=phrases)], ordered, edges, CPU)
    progress = constraints.begin().at(torch.zeros(1, len(texts), dtype=torch.long))
    last = torch.full((1, len(texts)), BOS_ID)
    counts = [constraints.missing(progress)[0]]
    for tokens in torch.tensor(texts).T[:, None]:
        progress, last = constraints.advance(progress, last, tokens), tokens
        counts.append(constraints.missing(progress)[0])
    return counts


def can_be_placed(phrases: Phrases, tokens: tuple[int, ...], ordered: bool, edges: WordEdges) -> bool:
    """Whether the phrases stand in the tokens, each whole and none in another, by trying all placements."""

    def places(writing: Writing) -> list[range]:
        size, found = len(writing.tokens), []
        for start in range(len(tokens) - size + 1):
            end = start + size
            joined = writing.after_break and start > 0 and tokens[start - 1] in edges.ending_within
            goes_on = writing.ends_in_word and end < len(tokens) and tokens[end] in edges.continuing
            if tokens[start:end] == writing.tokens and not joined and not goes_on:
                found.append(range(start, end))
        return found

    choices = [[place for writing in phrase for place in places(writing)] for phrase in phrases]
    for chosen in itertools.product(*choices):
        in_order = list(chosen) if ordered else sorted(chosen, key=lambda place: place.start)
        if all(one.stop <= other.start for one, other in itertools.pairwise(in_order)):
            return True
    return False


APART = [
    plain((A,)),
    plain((A, B), (C,)),
    plain((A, A)),
    plain((A,), (A,)),
    plain((A,), (A, B)),
    plain((B,), (A, B, C)),
    ((Writing((A,)), Writing((A, B))), (Writing((C,)),)),
    ((Writing((A,), ends_in_word=True),), (Writing((D, C)), Writing((C,), after_break=True))),
]
# "A B C A B" holds both, and yet A B is met by the first two tokens: what begins first is taken.
OVERLAPPING = [plain((A, B), (B, C)), plain((A, B, A), (A, C))]
EDGES = WordEdges(continuing=(B,), ending_within=(A, B))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("phrases", [*APART, *OVERLAPPING])
def test_what_is_met_is_there_and_what_is_there_is_met(phrases: Phrases, ordered: bool) -> None:
    texts = list(itertools.product((A, B, C, D), repeat=6))
    counts = missing_after(phrases, texts, ordered, EDGES)
    least = sum(min(len(w.tokens) for w in phrase if not w.after_break) for phrase in phrases)
    assert all(counts[0] == least)
    assert all((count >= 0).all() and (count <= least).all() for count in counts)
    placed = torch.tensor([can_be_placed(phrases, text, ordered, EDGES) for text in texts])
    met = counts[-1] == 0
    assert not (met & ~placed).any()
    if phrases in APART:
        assert torch.equal(met, placed)
    else:
        assert (placed & ~met).sum() < 0.07 * placed.sum()


@pytest.mark.parametrize("phrases", [*APART, *OVERLAPPING])
@pytest.mark.parametrize("ordered", [False, True])
def test_the_next_tokens_lead_on(phrases: Phrases, ordered: bool) -> None:
    """From wherever a hypothesis is, one of the tokens that are offered leaves a token less to write."""
    texts = list(itertools.product((A, B, C, D), repeat=4))
    constraints = Constraints([Demand(constraints=phrases)], ordered, EDGES, CPU)
    progress = constraints.begin().at(torch.zeros(1, len(texts), dtype=torch.long))
    last = torch.full((1, len(texts)), BOS_ID)
    for tokens in torch.tensor(texts).T[:, None]:
        progress, last = constraints.advance(progress, last, tokens), tokens
    missing = constraints.missing(progress)
    offered = constraints.next_tokens(progress, last)
    least = torch.stack(
        [
            constraints.missing(constraints.advance(progress, last, tokens)).masked_fill(tokens < 0, 99)
            for tokens in offered.unbind(dim=2)
        ]
    ).amin(dim=0)
    assert (least < missing)[missing > 0].all()
