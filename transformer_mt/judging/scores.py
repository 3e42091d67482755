"""BLEU, chrF and TER of a test set by sacreBLEU, with its intervals and its paired bootstrap (Koehn 2004).

sacreBLEU counts each sentence once, and a score is a function of sums of the counts. So the scores of parts of a test
set, and those of resamples, come from the same counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from transformer_mt.evaluation.metrics import check_bleu_tokenizer
from transformer_mt.judging.scored_set import ScoredSet

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

HIGHER_IS_BETTER = {"BLEU": True, "chrF": True, "TER": False}
NUM_RESAMPLES = 1000  # as sacreBLEU has it
SEED = 12345  # as sacreBLEU has it
SIGNIFICANT = 0.05
# Resamples of few sentences vary too little. Where chance alone makes the differences (8,000 draws from a normal
# distribution), the bootstrap finds p below 0.05 in 1 of 14 tests on 20 sentences instead of 1 of 20, in 1 of 10 on 10
# sentences, and in 1 of 6 on 5. Every resample of one sentence is that sentence.
FEWEST_SENTENCES = 20


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100 (TER may be more), the mean of its resamples, and the interval that holds 95 % of them.

    `p_value` is that of the difference from the first system; None for the first, where there is no difference,
    and of fewer than `FEWEST_SENTENCES`.
    """

    value: float
    mean: float
    low: float
    high: float
    p_value: float | None = None

    @property
    def half(self) -> float:
        """Half the width of the interval: the number that sacreBLEU prints behind ±."""
        return (self.high - self.low) / 2

    @property
    def p_text(self) -> str:
        """The p-value as tables show it."""
        return "–" if self.p_value is None else f"{self.p_value:.4f}"


class Counts:
    """The counts of one metric of every sentence: an array (sentences, counts), and the score of any part of them."""

    def __init__(self, metric: "Metric", counts: Any) -> None:
        self._score_of_sums: Any = metric._compute_score_from_stats
        self.counts = np.array(counts, dtype=np.float64).reshape(len(counts), -1)

    def score(self, rows: Sequence[int] | None = None) -> float:
        """The score of these sentences together, by default of all."""
        return self._score_of(self.counts.sum(0) if rows is None else self.counts[list(rows)].sum(0))

    def sentence_scores(self) -> list[float]:
        """The score of each sentence by itself."""
        return [self._score_of(row) for row in self.counts]

    def with_interval(self, rows: Sequence[int]) -> Score:
        """The score of these sentences with its interval, by `NUM_RESAMPLES` resamples of them."""
        sums = resampled_sums(self.counts[list(rows)])
        return interval(self.score(rows), np.array([self._score_of(one) for one in sums]))

    def _score_of(self, sums: np.ndarray) -> float:
        return self._score_of_sums(sums).score


def resampled_sums(counts: np.ndarray) -> np.ndarray:
    """(sentences, counts) -> the sums of `NUM_RESAMPLES` resamples, each of as many sentences as there are."""
    number = len(counts)
    drawn = np.random.default_rng(SEED).multinomial(number, np.full(number, 1 / number), size=NUM_RESAMPLES)
    return drawn @ counts


def interval(value: float, resampled: np.ndarray, p_value: float | None = None) -> Score:
    """A score with the interval of its resamples: without the highest and the lowest 40th part of them."""
    ordered = np.sort(resampled)
    outside = len(ordered) // 40
    return Score(value, float(ordered.mean()), float(ordered[outside]), float(ordered[-outside - 1]), p_value)


@dataclass(frozen=True)
class SetScores:
    """By metric: the score of each system, the signature, and the counts of each system."""

    scores: dict[str, list[Score]]
    signatures: dict[str, str]
    counts: dict[str, list[Counts]]


def metrics_for(tokenizer: str, lowercase: bool) -> "dict[str, Metric]":
    """sacreBLEU's metrics. TER ignores case, as sacreBLEU's does by default; where BLEU's tokenizer is one for a script
    without spaces, TER takes each character of such scripts as a word. Raises UserError for an unknown tokenizer.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    check_bleu_tokenizer(tokenizer)
    unspaced = tokenizer in ("zh", "ja-mecab", "char")
    # force: tokenized text is scored as it is, without a warning; the signature names the tokenizer.
    return {
        "BLEU": BLEU(tokenize=tokenizer, lowercase=lowercase, force=True),
        "chrF": CHRF(lowercase=lowercase),
        "TER": TER(normalized=unspaced, asian_support=unspaced),
    }


class _Once:
    """A metric that counts each system once, though the paired test, the intervals and the groups all ask for it."""

    def __init__(self, metric: "Metric") -> None:
        self.metric = metric
        self._known: dict[tuple[str, ...], Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.metric, name)

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Any:
        key = tuple(hypotheses)
        if key not in self._known:
            self._known[key] = self.metric._extract_corpus_statistics(hypotheses, references)
        return self._known[key]


def score_set(test_set: ScoredSet, tokenizer: str = "13a", lowercase: bool = False) -> SetScores:
    """The scores of every system of a test set; those of a second one have p-values by sacreBLEU's paired bootstrap."""
    metrics = {name: _Once(metric) for name, metric in metrics_for(tokenizer, lowercase).items()}
    texts = [output.texts for output in test_set.outputs]
    found = SetScores({}, {}, {})
    for name, metric in metrics.items():
        scores, found.signatures[name] = _scored(metric, texts, test_set.references)
        found.scores[name] = scores
        each = [metric._extract_corpus_statistics(system, test_set.references) for system in texts]
        found.counts[name] = [Counts(metric.metric, counts) for counts in each]
    return found


def _scored(metric: Any, systems: list[list[str]], references: list[list[str]]) -> tuple[list[Score], str]:
    """The scores of all systems by a metric, and its signature. sacreBLEU draws the same resamples for each system."""
    from sacrebleu.significance import PairedTest, _bootstrap_resample

    named: list[tuple[str, Sequence[str]]] = [(str(number), texts) for number, texts in enumerate(systems)]
    test = PairedTest(named, {"metric": metric}, references, test_type="bs", n_samples=NUM_RESAMPLES)
    signatures, results = test()
    ((key, signature),) = signatures.items()
    scores = []
    found: list[Any] = results[key]
    for texts, result in zip(systems, found, strict=True):
        counts = metric._extract_corpus_statistics(texts, references)
        _, resampled = _bootstrap_resample(counts, metric, NUM_RESAMPLES)
        # sacreBLEU gives a system that differs in nothing the lowest p-value that there is.
        is_tested = len(texts) >= FEWEST_SENTENCES and scores and result.score != scores[0].value
        p_value = result.p_value if is_tested else None
        scores.append(interval(result.score, np.array([one.score for one in resampled]), p_value))
    return scores, str(signature)


def is_significant(scores: Sequence[Score]) -> bool:
    """Whether the second of two systems differs from the first by more than chance."""
    p_value = scores[1].p_value
    return p_value is not None and p_value < SIGNIFICANT


def gain(metric: str, scores: Sequence[Score]) -> float:
    """By how much the second system is better than the first; below 0 where it is worse."""
    difference = scores[1].value - scores[0].value
    return difference if HIGHER_IS_BETTER[metric] else -difference
