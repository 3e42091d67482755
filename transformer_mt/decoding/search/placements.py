"""Whether a finished text holds its constraints, by its tokens alone, and which it lacks.

Each constraint stands at a place of its own. Two may share the tokens at which one ends and the other begins, as "A B"
and "B C" do in "A B C". None counts within another one, so that a phrase that is asked for twice stands there twice.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations

from transformer_mt.decoding.search.rules import Demand, WordEdges, Writing

Place = tuple[int, int]  # the first token that is no space, and the one after the last
Phrase = tuple[Writing, ...]


class Placements:
    """The constraints of the sentences of a batch. With `ordered`, each begins and ends after the one before it."""

    def __init__(self, demands: Sequence[Demand], ordered: bool, edges: WordEdges) -> None:
        self._phrases = [demand.constraints for demand in demands]
        self._rivals = [_rivals(phrases) for phrases in self._phrases]
        self._ordered = ordered
        self._continuing, self._ending_within = frozenset(edges.continuing), frozenset(edges.ending_within)
        # Whether a text may hold the constraints of a sentence in several ways, of which `Progress` follows one.
        self.touch = [any(_touch(*pair) for pair in permutations(phrases, 2)) for phrases in self._phrases]

    def holds_all(self, sentence: int, tokens: Sequence[int]) -> bool:
        """Whether the tokens hold all constraints of a sentence."""
        return self._can_stand(range(len(self._phrases[sentence])), sentence, tokens)

    def unmet(self, sentence: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """The numbers of constraints, counted from 0, that find no place beside those before them."""
        met: list[int] = []
        for number in range(len(self._phrases[sentence])):
            if self._can_stand([*met, number], sentence, tokens):
                met.append(number)
        return tuple(number for number in range(len(self._phrases[sentence])) if number not in met)

    def _can_stand(self, numbers: Iterable[int], sentence: int, tokens: Sequence[int]) -> bool:
        phrases = [self._phrases[sentence][number] for number in numbers]
        needed = Counter(phrases)
        places: dict[Phrase, list[Place]] = {}
        for phrase, number in needed.items():
            places[phrase] = sorted({place for writing in phrase for place in self._places(writing, tokens)})
            if len(places[phrase]) < number:
                return False
        if self._ordered:
            return _follow_each_other([places[phrase] for phrase in phrases])
        return all(
            _fit({phrase: (needed[phrase], places[phrase]) for phrase in group if phrase in needed})
            for group in self._rivals[sentence]
        )

    def _places(self, writing: Writing, tokens: Sequence[int]) -> Iterator[Place]:
        size, start = len(writing.tokens), -1
        for _ in range(tokens.count(writing.tokens[0])):
            start = tokens.index(writing.tokens[0], start + 1)
            end = start + size
            joined = writing.after_break and start > 0 and tokens[start - 1] in self._ending_within
            goes_on = writing.ends_in_word and end < len(tokens) and tokens[end] in self._continuing
            if tuple(tokens[start:end]) == writing.tokens and not joined and not goes_on:
                yield start + writing.num_spaces, end


def _follow_each_other(choices: Sequence[list[Place]]) -> bool:
    """Whether a place can be taken of each list in turn, beginning and ending after the one before it."""
    reached = [(-1, -1)]
    for places in choices:
        following = [place for place in places if any(_is_before(one, place) for one in reached)]
        reached = []
        for place in following:  # by where they begin: one that ends no earlier than another leads nowhere else
            if not reached or place[1] < reached[-1][1]:
                reached.append(place)
    return bool(reached)


def _fit(wanted: Mapping[Phrase, tuple[int, list[Place]]]) -> bool:
    """Whether each phrase finds as many places as it needs, beside those of the others, in any order."""
    # What has enough places that no place of another takes is in nobody's way. Without it others may have enough too.
    left = dict(wanted)
    while free := {phrase for phrase in left if _num_free(phrase, left) >= left[phrase][0]}:
        left = {phrase: of_phrase for phrase, of_phrase in left.items() if phrase not in free}
    return len(left) != 1 and _deal(list(left.values()))  # one alone would have been free


def _num_free(phrase: Phrase, wanted: Mapping[Phrase, tuple[int, list[Place]]]) -> int:
    """How many of its places a phrase can have at once, without those that are in the way of another phrase's."""
    others = [place for other, (_, places) in wanted.items() if other != phrase for place in places]
    free = [place for place in wanted[phrase][1] if all(_are_apart(place, other) for other in others)]
    ends: list[int] = []  # the smallest end of one, two, three places, of which each ends after the one before it
    for _, end in sorted(free, key=lambda place: (place[0], -place[1])):
        ends[(i := bisect_left(ends, end)) : i + 1] = [end]
    return len(ends)


def _deal(wanted: Sequence[tuple[int, list[Place]]]) -> bool:
    """Whether the numbers of places that are wanted of each list can be taken, all apart. Goes through the text once,
    and then back to the last place where it could have chosen otherwise; no state is left twice.
    """
    starting: dict[int, list[tuple[int, int]]] = {}  # what may begin at a token: where it ends, and its list
    for number, (_, places) in enumerate(wanted):
        for start, end in places:
            starting.setdefault(start, []).append((end, number))
    steps = [sorted(starting[start], reverse=True) for start in sorted(starting)]
    to_come = [Counter()]  # of each list, how many places begin from a step on
    for step in reversed(steps):
        to_come.insert(0, to_come[0] + Counter(number for _, number in step))
    smallest_end: dict[tuple[int, tuple[int, ...]], int] = {}
    waiting = [(0, tuple(needed for needed, _ in wanted), -1)]  # a step, what is needed from there on, the last end
    while waiting:
        k, needed, last = waiting.pop()
        if not any(needed):
            return True
        is_known = smallest_end.get((k, needed), last + 1) <= last
        # At a token begins at most one of those that are taken.
        is_vain = sum(needed) > len(steps) - k or any(to_come[k][i] < number for i, number in enumerate(needed))
        if is_known or is_vain:
            continue
        smallest_end[k, needed] = last
        waiting.append((k + 1, needed, last))
        for end, number in steps[k]:
            if end > last and needed[number]:
                fewer = (*needed[:number], needed[number] - 1, *needed[number + 1 :])
                waiting.append((k + 1, fewer, end))
    return False


def _is_before(one: Place, other: Place) -> bool:
    return one[0] < other[0] and one[1] < other[1]


def _are_apart(one: Place, other: Place) -> bool:
    """Neither is within the other, and they are not the same."""
    return _is_before(one, other) or _is_before(other, one)


def _rivals(phrases: Sequence[Phrase]) -> list[list[Phrase]]:
    """The phrases, each once, in groups: only those of the same group can stand within one another."""
    groups: list[list[Phrase]] = []
    for phrase in dict.fromkeys(phrases):
        met = [group for group in groups if any(_may_nest(phrase, other) for other in group)]
        groups = [group for group in groups if group not in met]
        groups.append([phrase, *(other for group in met for other in group)])
    return groups


def _may_nest(one: Phrase, other: Phrase) -> bool:
    """Whether a place of one can be within one of the other, or be the same."""
    pairs = [(a.tokens[a.num_spaces :], b.tokens[b.num_spaces :]) for a in one for b in other]
    return any(a == b or _is_within(a, b) or _is_within(b, a) for a, b in pairs)


def num_shared(demand: Demand) -> int:
    """How many tokens the constraints of a demand can have in common at most."""
    phrases = demand.constraints
    shared = [
        max((_overlap(other, phrase) for j, other in enumerate(phrases) if j != i), default=0)
        for i, phrase in enumerate(phrases)
    ]
    return sum(shared) - min(shared, default=0)  # the first of all shares with none before it


def _touch(one: Phrase, other: Phrase) -> bool:
    """Whether a writing of `one` may go over into one of `other`, or lie within it."""
    return _overlap(one, other) > 0 or any(_is_within(a.tokens, b.tokens) for a in one for b in other)


def _overlap(one: Phrase, other: Phrase) -> int:
    """With how many tokens at most a writing of `one` ends as one of `other` begins, neither being within the other."""
    pairs = ((a.tokens, b.tokens) for a in one for b in other)
    return max(next((n for n in range(min(len(a), len(b)) - 1, 0, -1) if a[-n:] == b[:n]), 0) for a, b in pairs)


def _is_within(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a != b and any(b[i : i + len(a)] == a for i in range(len(b) - len(a) + 1))
