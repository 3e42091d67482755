"""Where a system is better or worse: by length of the source, by rarity of words, and by the model's own score."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from transformer_mt.judging.scored_set import ScoredSet
from transformer_mt.judging.scores import Counts, Score, SetScores, interval, resampled_sums
from transformer_mt.judging.words import Frequencies, words_of

NUM_GROUPS = 5


@dataclass(frozen=True)
class Group:
    """Some sentences, or some words, of each system, and their scores: by metric a score for each system. `sizes` are
    the numbers of sentences or words.
    """

    label: str
    sizes: list[int]
    scores: dict[str, list[Score]]


def in_groups(values: Sequence[float], num_groups: int = NUM_GROUPS) -> list[list[int]]:
    """The places of values in groups of about the same size, from the lowest values up. Equal values stay together, so
    that there may be fewer groups.
    """
    order = sorted(range(len(values)), key=lambda place: values[place])
    groups: list[list[int]] = []
    current: list[int] = []
    due = len(values) / num_groups
    for number, place in enumerate(order, start=1):
        current.append(place)
        is_last = number == len(order)
        if is_last or (number >= due and values[order[number]] != values[place]):
            groups.append(current)
            current = []
            due = (math.floor(number * num_groups / len(values)) + 1) * len(values) / num_groups
    return groups


def by_length(test_set: ScoredSet, scores: SetScores) -> list[Group]:
    """By words of the source; of the first reference where no sources were given."""
    texts = test_set.sources or test_set.references[0]
    lengths = [len(words_of(text)) for text in texts]
    found = []
    for rows in in_groups(lengths):
        low, high = lengths[rows[0]], lengths[rows[-1]]
        label = f"{low}" if low == high else f"{low}–{high}"
        each = [rows] * len(test_set.outputs)
        found.append(Group(label, list(map(len, each)), _scores_of(each, scores)))
    return found


def by_certainty(test_set: ScoredSet, scores: SetScores) -> tuple[list[Group], list[list[str]]]:
    """By the model's own score, each system by its own; nothing where a system is a file. The groups are fifths, or
    fewer parts where many scores are equal. Beside each group: which mean probabilities of a token it holds, for each
    system.
    """
    certainties = [output.certainty for output in test_set.outputs if output.certainty is not None]
    if len(certainties) < len(test_set.outputs):
        return [], []
    parts = [in_groups(certainty) for certainty in certainties]
    while len({len(part) for part in parts}) > 1:
        fewest = min(map(len, parts))
        parts = [
            part if len(part) == fewest else in_groups(certainty, fewest)
            for part, certainty in zip(parts, certainties, strict=True)
        ]
    number = len(parts[0])
    found, ranges = [], []
    for group, rows in enumerate(zip(*parts, strict=True)):
        label = {0: "least sure", number - 1: "surest"}.get(group, f"{group + 1}")
        found.append(Group(label, [len(some) for some in rows], _scores_of(list(rows), scores)))
        ends = [(certainty[some[0]], certainty[some[-1]]) for certainty, some in zip(certainties, rows, strict=True)]
        ranges.append([f"{math.exp(low):.2f}–{math.exp(high):.2f}" for low, high in ends])
    return found, ranges


def _scores_of(rows: list[list[int]], scores: SetScores) -> dict[str, list[Score]]:
    """By metric, the score of each system on its rows."""

    def each(counts: list[Counts]) -> list[Score]:
        return [one.with_interval(some) for one, some in zip(counts, rows, strict=True)]

    return {name: each(counts) for name, counts in scores.counts.items()}


def by_rarity(test_set: ScoredSet, frequencies: Frequencies, lowercase: bool) -> list[Group]:
    """By rarity of words: F1, 0 to 100, of the words of each group in the translations against those in the first
    reference. A word that a sentence has twice must be twice in its translation.
    """
    fold: Callable[[str], str] = str.lower if lowercase else str
    references = [Counter(words_of(fold(text))) for text in test_set.references[0]]
    labels = frequencies.labels()
    of_systems = []
    for output in test_set.outputs:
        counts = np.zeros((len(labels), len(references), 3))  # words right, in the translation, in the reference
        for row, (text, reference) in enumerate(zip(output.texts, references, strict=True)):
            made = Counter(words_of(fold(text)))
            for column, bag in enumerate((made & reference, made, reference)):
                for word, count in bag.items():
                    counts[frequencies.group_of(word), row, column] += count
        of_systems.append(counts)
    found = []
    for group, label in enumerate(labels):
        if of_systems[0][group, :, 2].sum() == 0:
            continue  # no reference has such a word
        sizes = [int(counts[group, :, 2].sum()) for counts in of_systems]
        found.append(Group(label, sizes, {"F1": [_f1(counts[group]) for counts in of_systems]}))
    return found


def _f1(counts: np.ndarray) -> Score:
    """F1 of words with its interval, from (sentences, 3) counts: right, in the translation, in the reference."""

    def of(sums: np.ndarray) -> float:
        right, made, wanted = sums
        return 200 * right / (made + wanted) if made + wanted else 0.0

    return interval(of(counts.sum(0)), np.array([of(sums) for sums in resampled_sums(counts)]))
