"""What has been met of constraints, against a search through all placements."""

import itertools
import random
import time
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID
from transformer_mt.decoding.search.constraints import Constraints
from transformer_mt.decoding.search.placements import Placements, num_shared
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
    """Whether the phrases stand in the tokens, each whole and none within another, by trying all placements."""

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
        if all(one.start < other.start and one.stop < other.stop for one, other in itertools.pairwise(in_order)):
            return True
    return False


def any_holds(phrases: Phrases, length: int, ordered: bool) -> bool:
    """Whether a text of this length holds the phrases."""
    texts = itertools.product((A, B, C, D), repeat=length)
    return any(can_be_placed(phrases, text, ordered, EDGES) for text in texts)


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
# Of these a text may hold all in another way than the one that is followed.
TOUCHING = [
    plain((A, B), (B, C)), plain((A, B, A), (A, C)), plain((A,), (B,), (A, B, C)), plain((A, A), (A, A)),
    plain((A, B), (B, C), (C, A)), ((Writing((A, B)), Writing((A,))), (Writing((B,)),)),
    ((Writing((A, C), ends_in_word=True),), (Writing((C, A), after_break=True), Writing((C, C)))),
]  # fmt: skip
EDGES = WordEdges(continuing=(B,), ending_within=(A, B))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("phrases", [*APART, *TOUCHING])
def test_what_is_met_is_there_and_what_is_there_is_met(phrases: Phrases, ordered: bool) -> None:
    """Of all texts of so many tokens that the longest writings and two others have room, and of six at most."""
    room = sum(max(len(writing.tokens) for writing in phrase) for phrase in phrases) + 2
    texts = list(itertools.product((A, B, C, D), repeat=min(6, room)))
    counts = missing_after(phrases, texts, ordered, EDGES)
    least = sum(min(len(w.tokens) for w in phrase if not w.after_break) for phrase in phrases)
    assert all(counts[0] == least)
    assert all((count >= 0).all() and (count <= least).all() for count in counts)
    placed = torch.tensor([can_be_placed(phrases, text, ordered, EDGES) for text in texts])
    met = counts[-1] == 0
    assert not (met & ~placed).any()
    demand = Demand(constraints=phrases)
    placements = Placements([demand], ordered, EDGES)
    recognised = torch.tensor([placements.holds_all(0, text) for text in texts])
    assert torch.equal(recognised, placed)
    assert [placements.unmet(0, text) == () for text in texts] == placed.tolist()
    assert torch.equal(met | (recognised if placements.touch[0] else met), placed)
    shortest = next(n for n in itertools.count(1) if any_holds(phrases, n, ordered))
    # What is one only after a break counts for nothing beforehand, because it may have no break before it.
    assert least - num_shared(demand) <= shortest or any(way.after_break for phrase in phrases for way in phrase)


@pytest.mark.parametrize("phrases", [*APART, *TOUCHING])
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
    recognises = Placements([Demand(constraints=phrases)], ordered, EDGES).holds_all
    counts = []
    for tokens in offered.unbind(dim=2):
        left = constraints.missing(constraints.advance(progress, last, tokens)).masked_fill(tokens < 0, 99)
        held = [recognises(0, (*text, token)) for text, token in zip(texts, tokens[0].tolist(), strict=True)]
        counts.append(left.masked_fill(torch.tensor([held]), 0))
    assert (torch.stack(counts).amin(dim=0) < missing)[missing > 0].all()


@pytest.mark.parametrize("ordered", [False, True])
def test_placements_that_lack_room_for_one_are_told_at_once(ordered: bool) -> None:
    """To try them all would take years: of equal ones, and of those that nest, almost all fit in countless ways."""
    start = time.process_time()
    for number in (19, 43):
        placements = Placements([Demand(constraints=plain(*[(A,)] * number))], ordered, WordEdges())
        assert placements.unmet(0, (A,) * (number - 1)) == (number - 1,)
        assert time.process_time() - start < 10
    nested = plain(*[(A,)] * 20, *[(A, B, A)] * 20)
    placements = Placements([Demand(constraints=nested)], ordered, WordEdges())
    assert placements.holds_all(0, (A, B, A) * 30)
    assert not placements.holds_all(0, (A, B, A) * 29)
    prefixes = plain(*(tuple(range(A, A + size)) for size in range(1, 21)))
    placements = Placements([Demand(constraints=prefixes)], ordered, WordEdges())
    assert placements.holds_all(0, prefixes[-1][0].tokens * 20)
    assert not placements.holds_all(0, prefixes[-1][0].tokens * 19)
    assert time.process_time() - start < 10


def test_placements_are_those_of_a_search_through_all() -> None:
    """Of several phrases that nest, with breaks and more than one writing."""
    chance = random.Random(5)
    for _ in range(400):
        pool = [tuple(some_writing(chance) for _ in range(chance.choice((1, 1, 2)))) for _ in range(4)]
        phrases = tuple(chance.choices(pool, k=chance.randint(2, 4)))
        ordered, edges = chance.random() < 0.3, chance.choice((EDGES, WordEdges()))
        placements = Placements([Demand(constraints=phrases)], ordered, edges)
        text = tuple(chance.choices((A, B, C), k=chance.randint(3, 10)))
        assert placements.holds_all(0, text) == can_be_placed(phrases, text, ordered, edges), (phrases, text, ordered)


def some_writing(chance: random.Random) -> Writing:
    tokens = tuple(chance.choices((A, B, C), k=chance.randint(1, 3)))
    return Writing(tokens, after_break=chance.random() < 0.2, ends_in_word=chance.random() < 0.2)
