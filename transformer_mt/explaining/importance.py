"""Which words of a source mattered for a target, by three measures side by side, and how far each can be trusted.

What the removal of a word does to the target's log-probability is a fact about the model. Rollout and gradients are
quicker guesses at it, and each is told with its rank correlation to that fact.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.translator import Translator
from transformer_mt.explaining.gradients import gradient_times_input
from transformer_mt.explaining.rollout import rollout
from transformer_mt.explaining.source_words import SourceWords

MOST_REMOVED = 3
LEAST_RANKED = 3  # words, of which a rank correlation says something
LEAVE_ONE_OUT, GRADIENT, ROLLOUT = "leave-one-out", "gradient x input", "rollout"


@dataclass(frozen=True)
class Measure:
    """What a measure says of each word. `correlation` is Spearman's with leave-one-out, None where one of both does not
    tell the words apart. `drops` are the losses of log-probability when the 1, 2, … words that it ranks first are
    removed together.
    """

    scores: list[float]
    correlation: float | None
    drops: list[float]


@dataclass(frozen=True)
class Importance:
    """The words of a source and the measures by name. `log_prob` is that of the target for the whole source; `missing`
    says why a measure is not there.
    """

    words: list[str]
    log_prob: float
    measures: dict[str, Measure]
    missing: dict[str, str]


def importance(translator: Translator, words: SourceWords, src: list[int], tgt: list[int]) -> Importance:
    """Of a source, also given as ids, for a target given as ids; both without special tokens."""
    model, device = translator.model, translator.device
    src_ids = torch.tensor([[*src, EOS_ID]], device=device)
    tgt_in, tgt_out = (torch.tensor([row], device=device) for row in ([BOS_ID, *tgt], [*tgt, EOS_ID]))
    number = len(words.spans)
    log_prob, *without = _log_probs(translator, words, tgt, [(), *((word,) for word in range(number))])
    scores = {LEAVE_ONE_OUT: [log_prob - other for other in without]}
    of_tokens = gradient_times_input(model, src_ids, tgt_in, tgt_out)
    scores[GRADIENT] = words.sums(of_tokens.double().cpu().numpy())
    missing = {}
    seen = rollout(model, src_ids, tgt_in)
    if seen is None:
        missing[ROLLOUT] = "the states of a recurrent network carry words past its attention"
    else:
        scores[ROLLOUT] = words.sums(seen.mean(dim=0).numpy())
    measures = {}
    for name, of_words in scores.items():
        ranked = sorted(range(number), key=lambda word: -of_words[word])
        removed = [tuple(ranked[:k]) for k in range(1, min(MOST_REMOVED, number) + 1)]
        drops = [log_prob - other for other in _log_probs(translator, words, tgt, removed)]
        measures[name] = Measure(of_words, rank_correlation(of_words, scores[LEAVE_ONE_OUT]), drops)
    return Importance(words.words, log_prob, measures, missing)


def _log_probs(
    translator: Translator, words: SourceWords, tgt: list[int], removed: Sequence[tuple[int, ...]]
) -> list[float]:
    """The log-probability of the target for the source without each of these sets of words. Without any word it is the
    end of a sentence alone.
    """
    rows = translator.src_tokenizer.encode_batch([words.without(some) for some in removed])
    pairs = {number: (row, tgt) for number, row in enumerate(rows)}
    found = dict(translator.scorer.score_ids(pairs, translator.config.decoding.batch_size))
    return [sum(found[number]) for number in range(len(rows))]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's: Pearson's of the ranks, equal values at their mean rank. None for fewer than three values, and where
    all of one side are equal.
    """
    if len(first) < LEAST_RANKED:
        return None
    ranks = [_ranks(np.asarray(values)) for values in (first, second)]
    deviations = [of - of.mean() for of in ranks]
    norms = [float(np.linalg.norm(of)) for of in deviations]
    return float(deviations[0] @ deviations[1]) / (norms[0] * norms[1]) if all(norms) else None


def _ranks(values: np.ndarray) -> np.ndarray:
    """The number of smaller values, and half of the equal ones."""
    return (values[:, None] > values).sum(axis=1) + (values[:, None] == values).sum(axis=1) / 2
