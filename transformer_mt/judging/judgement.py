"""Everything that is found out about a test set, and the verdict in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from transformer_mt.judging.faults import faults_of
from transformer_mt.judging.groups import Group, by_certainty, by_length, by_rarity
from transformer_mt.judging.scored_set import ScoredSet
from transformer_mt.judging.scores import FEWEST_SENTENCES, SetScores, gain, is_significant, score_set
from transformer_mt.judging.words import Frequencies, frequencies_in
from transformer_mt.plurals import counted

LETTERS = "AB"


@dataclass(frozen=True)
class Judgement:
    """A test set with its scores, its faults, and the chrF of each sentence of each system. The groups are worked out
    when they are asked for, because a report alone shows them. `frequencies` gives those of words in the training data,
    or None where they are not known.
    """

    test_set: ScoredSet
    scores: SetScores
    faults: dict[str, list[list[int]]]
    sentence_scores: list[list[float]]
    lowercase: bool
    frequencies: Callable[[], Frequencies | None]

    @cached_property
    def lengths(self) -> list[Group]:
        """By length of the source."""
        return by_length(self.test_set, self.scores)

    @cached_property
    def counted_words(self) -> Frequencies:
        """How often words come, in the training data or else in the references."""
        fold = str.lower if self.lowercase else str
        return self.frequencies() or frequencies_in(map(fold, self.test_set.references[0]))

    @cached_property
    def rarities(self) -> list[Group]:
        """By rarity of words."""
        return by_rarity(self.test_set, self.counted_words, self.lowercase)

    @cached_property
    def certainties(self) -> tuple[list[Group], list[list[str]]]:
        """By the model's own score, and for each group and system the probabilities of a token that it holds."""
        return by_certainty(self.test_set, self.scores)

    @property
    def is_comparison(self) -> bool:
        """Whether there are two systems."""
        return len(self.test_set.outputs) == 2

    @property
    def is_short(self) -> bool:
        """Whether there are too few sentences for a test of significance."""
        return len(self.test_set) < FEWEST_SENTENCES

    @property
    def names(self) -> list[str]:
        """A, B, or of a single system its own name."""
        return list(LETTERS) if self.is_comparison else [self.test_set.outputs[0].name]

    def gains(self) -> list[float]:
        """By how much the second system's chrF of each sentence is above the first one's."""
        first, second = self.sentence_scores
        return [b - a for a, b in zip(first, second, strict=True)]


def judge_set(
    test_set: ScoredSet, tokenizer: str, lowercase: bool, frequencies: Callable[[], Frequencies | None] = lambda: None
) -> Judgement:
    """Judge a test set. `frequencies`: see `Judgement`."""
    scores = score_set(test_set, tokenizer, lowercase)
    each = [counts.sentence_scores() for counts in scores.counts["chrF"]]
    return Judgement(test_set, scores, faults_of(test_set), each, lowercase, frequencies)


def verdict(judgement: Judgement) -> str:
    """Of two systems, which is better, in a sentence."""
    first, second = (output.texts for output in judgement.test_set.outputs)
    if first == second:
        return "A and B are the same translations."
    if judgement.is_short:
        number = counted(len(judgement.test_set), "sentence")
        return f"Which is better is open: {number}, and a test of significance needs {FEWEST_SENTENCES} at least."
    scores = judgement.scores.scores
    certain = {name: gain(name, pair) for name, pair in scores.items() if is_significant(pair)}
    better = [name for name, by in certain.items() if by > 0]
    worse = [name for name, by in certain.items() if by < 0]
    open_ones = [name for name in scores if name not in certain]
    if not certain:
        return "Neither is better: no difference between A and B is beyond chance."
    parts = [f"better than A by {listed(better)}"] if better else []
    parts += [f"worse {'' if better else 'than A '}by {listed(worse)}"] if worse else []
    rest = f"; by {listed(open_ones)} the difference may be chance" if open_ones else ""
    return f"B is {' and '.join(parts)}{rest}."


def listed(names: Sequence[str]) -> str:
    """`BLEU, chrF and TER`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def counts_of_changes(judgement: Judgement) -> tuple[int, int, int]:
    """How many sentences are better, worse and as good in the second system, by chrF."""
    gains = judgement.gains()
    better, worse = sum(one > 0 for one in gains), sum(one < 0 for one in gains)
    return better, worse, len(gains) - better - worse


def largest_changes(judgement: Judgement, number: int) -> tuple[list[int], list[int]]:
    """The sentences that won most from the first system to the second, and those that lost most; places in order."""
    gains = judgement.gains()
    order = sorted(range(len(gains)), key=lambda place: (-gains[place], place))
    won = [place for place in order[:number] if gains[place] > 0]
    lost = [place for place in reversed(order[-number:]) if gains[place] < 0]
    return won, lost


def best_and_worst(judgement: Judgement, system: int, number: int) -> tuple[list[int], list[int]]:
    """The sentences of a system with the best and with the worst chrF; among equals the longest come first, because a
    short one is easily right. No sentence is on both lists.
    """
    scores = judgement.sentence_scores[system]
    lengths = [len(text) for text in judgement.test_set.references[0]]
    best = sorted(range(len(scores)), key=lambda place: (-scores[place], -lengths[place], place))
    worst = sorted(range(len(scores)), key=lambda place: (scores[place], -lengths[place], place))
    half = min(number, -(-len(scores) // 2))
    chosen = worst[:half]
    return [place for place in best if place not in set(chosen)][:number], chosen
