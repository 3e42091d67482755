"""Minimum Bayes risk: of several translations of a sentence, the one that is most like all of them.

Each candidate is a hypothesis, and each a reference for the others (Kumar and Byrne 2004; Eikema and Aziz 2020). The
expected utility of a hypothesis is its mean score against the references, each weighted by its probability. The scores
are sacreBLEU's of single sentences. They are worked out here for all pairs at once: sacreBLEU takes seconds for those
of 100 candidates, and this some hundredths of one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.bleu_tokenizers import bleu_tokenizer
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translation

CHRF_ORDER, CHRF_BETA, BLEU_ORDER = 6, 2, 4  # sacreBLEU's own
COLUMNS_AT_ONCE = 2**14  # of a matrix of candidates by n-grams, so that long sentences take no more memory
Matrix = NDArray[np.float64]
Lengths = NDArray[np.int64]


def expected_utilities(
    texts: Sequence[str], weights: Sequence[float], metric: str, language: str = ""
) -> NDArray[np.float64]:
    """The expected utility (texts,) of each text, 0 to 100, against all of them, itself included.

    weights: what each counts as a reference, in any unit. metric: a key of `UTILITIES`. language: that of the texts, by
    which BLEU cuts them into words.
    """
    distinct, place = np.unique(np.array(texts, dtype=object), return_inverse=True)
    shares = np.bincount(place, np.asarray(weights, np.float64))
    utilities = UTILITIES[metric](distinct.tolist(), language) @ (shares / shares.sum())
    return utilities[place]


def most_useful(candidates: Sequence[Translation], options: SearchOptions, language: str) -> list[Translation]:
    """The `n_best` candidates of the highest expected utility by `options.mbr`, best first; of equal ones the likelier,
    or of samples the earlier one, first. Each has its utility. Samples count alike: likely ones come more often.
    """
    assert options.mbr is not None
    if not candidates:
        return []
    log_probs = [candidate.log_prob for candidate in candidates]
    weights = [1.0] * len(candidates) if options.is_sampling else shares_of_probability(log_probs)
    utilities = expected_utilities([candidate.text for candidate in candidates], weights, options.mbr, language)
    chosen = [replace(h, utility=float(utility)) for h, utility in zip(candidates, utilities, strict=True)]
    return sorted(chosen, key=lambda hypothesis: -hypothesis.rank)[: options.n_best]


def shares_of_probability(log_probs: Sequence[float]) -> list[float]:
    """Probabilities in proportion to those of the model, the largest of them 1."""
    return np.exp(np.asarray(log_probs) - max(log_probs)).tolist()


def chrf_scores(texts: Sequence[str], language: str = "") -> Matrix:
    """The chrF of each text as a hypothesis (rows) against each as a reference (columns), as sacreBLEU's `CHRF()`."""
    precision = np.zeros((len(texts), len(texts)))
    recall, num_orders = np.zeros_like(precision), np.zeros_like(precision)
    for matches, lengths in ngram_matches([list("".join(text.split())) for text in texts], CHRF_ORDER):
        counts = (lengths[:, None] > 0) & (lengths[None, :] > 0)
        precision += np.where(counts, matches / np.maximum(lengths, 1)[:, None], 0.0)
        recall += np.where(counts, matches / np.maximum(lengths, 1)[None, :], 0.0)
        num_orders += counts
    precision, recall = (total / np.maximum(num_orders, 1) for total in (precision, recall))
    weighted = CHRF_BETA**2 * precision + recall
    return 100 * (1 + CHRF_BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)


def bleu_scores(texts: Sequence[str], language: str = "") -> Matrix:
    """The same for BLEU, as sacreBLEU's `BLEU(effective_order=True)` with the tokenizer of the language."""
    from sacrebleu.metrics.bleu import BLEU

    tokenizer: Any = BLEU(tokenize=bleu_tokenizer(language), force=True).tokenizer
    words = [tokenizer(text.rstrip()).split() for text in texts]
    num_words = np.array([len(line) for line in words])
    log_precision = np.zeros((len(texts), len(texts)))
    halvings, any_match = np.zeros_like(log_precision), np.zeros_like(log_precision, dtype=bool)
    for matches, lengths in ngram_matches(words, BLEU_ORDER):
        # An order without a match counts as half a match, the next such order as a quarter, and so on.
        halvings += matches == 0
        counted = np.where(matches > 0, matches, 0.5**halvings)
        has_order = (lengths > 0)[:, None]
        log_precision += np.where(has_order, np.log(counted / np.maximum(lengths, 1)[:, None]), 0.0)
        any_match |= matches > 0
    orders = np.clip(num_words, 1, BLEU_ORDER)[:, None]
    shortfall = np.minimum(0.0, 1 - num_words[None, :] / np.maximum(num_words, 1)[:, None])
    return np.where(any_match, 100 * np.exp(log_precision / orders + shortfall), 0.0)


UTILITIES: dict[str, Callable[[Sequence[str], str], Matrix]] = {"chrf": chrf_scores, "bleu": bleu_scores}


def ngram_matches(lines: Sequence[Sequence[str]], max_order: int) -> Iterable[tuple[Matrix, Lengths]]:
    """For n = 1 to `max_order`: how many n-grams each two lines have in common (lines, lines), with their
    multiplicity, and how many n-grams each line has (lines,).
    """
    number: dict[str, int] = {}
    symbols = np.array([number.setdefault(item, len(number)) for line in lines for item in line], np.int64)
    line_of = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    grams = symbols
    for order in range(1, max_order + 1):
        if order > 1:  # what follows an n-gram within its line makes it longer
            longer = line_of[order - 1 :] == line_of[: max(0, len(line_of) - order + 1)]
            joined = grams[: len(longer)] * (len(number) + 1) + symbols[order - 1 :]
            joined[~longer] = -1
            grams = np.unique(joined, return_inverse=True)[1] if len(joined) else joined
            whole = np.flatnonzero(longer)
        else:
            whole = np.arange(len(symbols))
        owners = line_of[whole]
        yield _common(grams[whole], owners, len(lines)), np.bincount(owners, minlength=len(lines))


def _common(grams: NDArray[np.int64], owners: NDArray[np.int64], num_lines: int) -> Matrix:
    """How many items each two lines have in common, where line owners[i] has the item grams[i]."""
    order = np.lexsort((owners, grams))
    grams, owners = grams[order], owners[order]
    place = np.arange(len(grams))
    is_first = np.ones(len(grams), dtype=bool)
    is_first[1:] = (grams[1:] != grams[:-1]) | (owners[1:] != owners[:-1])
    # The second "a" of a line is another item than the first: what lines have in common is then a product of 0 and 1.
    occurrence = place - np.maximum.accumulate(np.where(is_first, place, 0))
    columns = np.unique(grams * (len(grams) + 1) + occurrence, return_inverse=True)[1] if len(grams) else grams
    common = np.zeros((num_lines, num_lines))
    by_column = np.argsort(columns, kind="stable")
    columns, owners = columns[by_column], owners[by_column]
    num_columns = int(columns[-1]) + 1 if len(columns) else 0
    for start in range(0, num_columns, COLUMNS_AT_ONCE):
        part = slice(*np.searchsorted(columns, [start, start + COLUMNS_AT_ONCE]))
        has = np.zeros((num_lines, min(COLUMNS_AT_ONCE, num_columns - start)), np.float32)
        has[owners[part], columns[part] - start] = 1.0
        common += has @ has.T
    return common
