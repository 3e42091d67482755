"""Whether a finished text holds its constraints, by its tokens alone, and which it lacks.

Each constraint stands at a place of its own. Two may share the tokens at which one ends and the other begins, as "A B"
and "B C" do in "A B C". None counts within another one, so that a phrase that is asked for twice stands there twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from transformer_mt.decoding.search.rules import Demand, WordEdges, Writing

Place = tuple[int, int]  # the first token that is no space, and the one after the last
Phrase = tuple[Writing, ...]


class Placements:
    """The constraints of the sentences of a batch. With `ordered`, each begins and ends after the one before it."""

    def __init__(self, demands: Sequence[Demand], ordered: bool, edges: WordEdges) -> None:
        self._phrases = [demand.constraints for demand in demands]
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
        choices: list[list[Place]] = []
        for phrase in phrases:
            choices.append([place for writing in phrase for place in self._places(writing, tokens)])
            if not choices[-1]:
                return False
        return self._choose(phrases, choices, [])

    def _choose(self, phrases: Sequence[Phrase], choices: Sequence[list[Place]], chosen: list[Place]) -> bool:
        """Whether there is a place for each phrase after those that are `chosen` for the first ones."""
        number = len(chosen)
        if number == len(phrases):
            return True
        for start, end in choices[number]:
            # Of equal phrases one order is enough.
            before = (i for i in range(number) if self._ordered or phrases[i] == phrases[number])
            after_those = all(chosen[i][0] < start and chosen[i][1] < end for i in before)
            apart = all((start < a and end < b) or (a < start and b < end) for a, b in chosen)
            if after_those and apart and self._choose(phrases, choices, [*chosen, (start, end)]):
                return True
        return False

    def _places(self, writing: Writing, tokens: Sequence[int]) -> Iterator[Place]:
        size, start = len(writing.tokens), -1
        for _ in range(tokens.count(writing.tokens[0])):
            start = tokens.index(writing.tokens[0], start + 1)
            end = start + size
            joined = writing.after_break and start > 0 and tokens[start - 1] in self._ending_within
            goes_on = writing.ends_in_word and end < len(tokens) and tokens[end] in self._continuing
            if tuple(tokens[start:end]) == writing.tokens and not joined and not goes_on:
                yield start + writing.num_spaces, end


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
