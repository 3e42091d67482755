"""How sure one may be of a translation and of each of its words.

The confidence of a word is the probability that a person's translation has it: that it stands in the reference, the
words in the same order. The confidence of a sentence is the share of words that it and the reference may be expected to
have in common: twice the common words, divided by the words of both. Both are learned from the run's validation split.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from transformer_mt.data.word_splitting import has_word
from transformer_mt.decoding.evidence import UNK, Evidence, words_of_text
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.lines.wrapping import Treatment
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Confidence, Translated, Translation, WordConfidence
from transformer_mt.finishing.calibration import Array, Calibrator, calibration_error, log_odds

LEAST = 0.01  # what a word counts at least in its sentence
SUREST = 12.0  # log-odds; a model that gives a token 0.999995 is as sure as one that gives it 1


@dataclass(frozen=True)
class Calibration:
    """What makes confidences of evidence, for words and for sentences."""

    words: Calibrator
    sentences: Calibrator

    @classmethod
    def fit(cls, evidence: Sequence[Evidence], references: Sequence[str]) -> "Calibration":
        """Learned from what the model says of its translations, and from the references of the same sentences."""
        right, shares = _outcomes(evidence, references)
        words = Calibrator.fit(np.concatenate([word_features(one) for one in evidence]), right)
        rows = [sentence_features(one, words(word_features(one))) for one in evidence]
        return cls(words, Calibrator.fit(rows, shares))

    def of_parts(self, parts: Sequence[Evidence]) -> Confidence:
        """The confidence of a text that the model wrote in these parts. Of nothing at all one may be sure."""
        words, total, num_words = [], 0.0, 0
        for part in parts:
            probabilities = self._of_words(part)
            words += [WordConfidence(*pair) for pair in zip(part.words, probabilities.tolist(), strict=True)]
            weight = max(1, len(part.words))
            total += weight * self._of_sentence(part, probabilities)
            num_words += weight
        return Confidence(total / num_words if num_words else 1.0, tuple(words))

    def _of_words(self, evidence: Evidence) -> Array:
        """UNK is in no reference, however likely the model finds it."""
        found = self.words(word_features(evidence))
        found[[word == UNK for word in evidence.words]] = 0.0
        return found

    def _of_sentence(self, evidence: Evidence, probabilities: Array) -> float:
        return float(self.sentences([sentence_features(evidence, probabilities)])[0]) if evidence.words else 0.0

    def errors(self, evidence: Sequence[Evidence], references: Sequence[str]) -> tuple[float, float]:
        """The expected calibration errors of words and of sentences that were not learned from."""
        found = [self.of_parts([one]) for one in evidence]
        right, shares = _outcomes(evidence, references)
        of_words = [word.confidence for confidence in found for word in confidence.words]
        of_sentences = [confidence.sentence for confidence in found]
        return calibration_error(of_words, right), calibration_error(of_sentences, shares)


def _outcomes(evidence: Sequence[Evidence], references: Sequence[str]) -> tuple[Array, list[float]]:
    """Whether each word of all texts is matched, and the share in common of each text."""
    right, shares = [], []
    for one, reference in zip(evidence, references, strict=True):
        other = words_of_text(reference)
        right.append(is_matched(one.words, other))
        shares.append(common_share(right[-1], len(other)))
    return np.concatenate(right), shares


def is_matched(words: Sequence[str], reference: Sequence[str]) -> Array:
    """1 for each word (words,) that is in a longest common subsequence of both, else 0. Of several such subsequences it
    is the one that takes words of the text as early as it can. Words are compared in NFC.
    """
    own, other = ([unicodedata.normalize("NFC", word) for word in side] for side in (words, reference))
    # longest[i][j]: of the words from i on and the reference from j on.
    longest = [[0] * (len(other) + 1) for _ in range(len(own) + 1)]
    for i in reversed(range(len(own))):
        row, below = longest[i], longest[i + 1]
        for j in reversed(range(len(other))):
            row[j] = below[j + 1] + 1 if own[i] == other[j] else max(below[j], row[j + 1])
    matched = np.zeros(len(own))
    j = 0
    for i in range(len(own)):
        place = next((k for k in range(j, len(other)) if other[k] == own[i]), None)
        if place is not None and longest[i + 1][place + 1] + 1 == longest[i][j]:
            matched[i], j = 1.0, place + 1
    return matched


def common_share(matched: Array, num_reference: int) -> float:
    """Twice the words in common, divided by the words of both; 0 where there is no word."""
    return 2 * float(matched.sum()) / max(1, len(matched) + num_reference)


def word_features(evidence: Evidence) -> Array:
    """What speaks for each word and against it (words, features)."""
    odds = np.array([_odds(min(own)) for own in evidence.log_probs])
    if not len(odds):
        return np.zeros((0, NUM_WORD_FEATURES))
    mean = np.full(len(odds), odds.mean())
    rows = [
        odds,
        [sum(own) for own in evidence.log_probs],
        [np.log(len(own)) for own in evidence.log_probs],
        [float(has_word(word)) for word in evidence.words],
        np.append(mean[:1], odds[:-1]),
        np.append(odds[1:], _odds(evidence.end)),
        mean,
        np.full(len(odds), odds.min()),
        np.full(len(odds), np.log(len(odds))),
    ]
    return np.column_stack([np.maximum(row, -4 * SUREST) for row in rows])


NUM_WORD_FEATURES = 9


def sentence_features(evidence: Evidence, probabilities: Array) -> list[float]:
    """What speaks for the sentence and against it. They are few, so that a sentence unlike all validation data does not
    get a confidence far from those of its words.
    """
    if not len(probabilities):
        return [0.0] * NUM_SENTENCE_FEATURES
    probabilities = np.maximum(probabilities, LEAST)
    return [
        float(log_odds(probabilities.mean())),
        float(log_odds(probabilities.min())),
        _odds(evidence.end),
        math.log(evidence.num_tokens),
        math.log(evidence.num_tokens / max(1, evidence.num_source)),
    ]


NUM_SENTENCE_FEATURES = 5


def _odds(log_prob: float) -> float:
    """The log-odds of a probability, within `SUREST`."""
    log_prob = min(log_prob, -1e-9)
    return max(-SUREST, min(SUREST, log_prob - math.log(-math.expm1(log_prob))))


class ConfidentTranslator(Treatment):
    """A translator whose hypotheses have the field `confidence`, by a calibration for the options that it is given.

    With `reject_below`, a line whose best hypothesis has a lower confidence is `rejected`: left to a person. Unless
    `is_written`, the confidences are not for columns beside the texts.
    """

    def __init__(
        self,
        translator: LineTranslator,
        calibration: Calibration,
        reject_below: float | None = None,
        is_written: bool = True,
    ) -> None:
        super().__init__(translator)
        self.calibration = calibration
        self.reject_below = reject_below
        self.is_written = is_written

    def changed(self, options: SearchOptions) -> SearchOptions:
        """The search gives evidence."""
        return options.model_copy(update={"evidence": True})

    def treated(self, lines: list[Translated], options: SearchOptions) -> list[Translated]:
        """The lines with the confidence of each hypothesis."""
        return [self._treated(line) for line in lines]

    def _treated(self, line: Translated) -> Translated:
        hypotheses = [replace(h, confidence=self.calibration.of_parts(h.evidence)) for h in line.hypotheses]
        rejected = self.reject_below is not None and confidence_of(hypotheses) < self.reject_below
        return replace(line, hypotheses=hypotheses, is_judged=self.is_written, rejected=rejected)


def confidence_of(hypotheses: Sequence[Translation]) -> float:
    """That of the best hypothesis; 1 where there is none, since nothing was written that could be wrong."""
    best = hypotheses[0].confidence if hypotheses else None
    return 1.0 if best is None else best.sentence
