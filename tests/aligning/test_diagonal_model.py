"""Expectation maximisation against sums over all alignments, closed forms against plain sums, and laws of both."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from toy import toy_pairs

from transformer_mt.aligning import find_kernels
from transformer_mt.aligning.bitext import Bitext, Side, read_bitext
from transformer_mt.aligning.diagonal_model import Settings, _Training, train_model
from transformer_mt.aligning.diagonal_prior import (
    LEAST_TENSION,
    MOST_TENSION,
    Places,
    best_tension,
    expected_feature,
    gradient,
    normaliser,
)
from transformer_mt.aligning.words import Vocabulary

SRC = [[0, 1], [1, 0, 2, 1], [2], [0, 0, 1], [3, 1, 0]]
TGT = [[0, 1, 2], [2, 0, 1], [1, 3], [0, 1], [3]]
NULL = 0.08


@pytest.fixture(params=["numba", "python"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loops as numba compiles them, and as Python runs them."""
    if request.param == "python":
        monkeypatch.setattr(find_kernels, "compiled_kernels", lambda: None)
    else:
        assert find_kernels.compiled_kernels() is not None
    return request.param


def feature(i: int, j: int, m: int, n: int) -> float:
    return -abs(i / m - j / n)


def prior(i: int, m: int, n: int, tension: float) -> list[float]:
    """Of no word, and then of each source word."""
    weights = [math.exp(tension * feature(i, j, m, n)) for j in range(1, n + 1)]
    return [NULL, *((1 - NULL) * weight / sum(weights) for weight in weights)]


def random_state(seed: int) -> _Training:
    """A model with other probabilities for every pair of words, over tiny sentences."""
    training = _Training(Bitext(Side.of(SRC), Side.of(TGT)), 4, 4, Settings(null_probability=NULL))
    random = np.random.default_rng(seed)
    training.table.values[:] = random.uniform(0.01, 1, len(training.table.values))
    training.null[:] = random.uniform(0.01, 1, 4)
    training.tension = float(random.uniform(0.5, 8))
    return training


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("either_way")
def test_expected_counts_are_sums_over_all_alignments(seed: int) -> None:
    training = random_state(seed)
    table = {
        (word, int(column)): float(value)
        for word in range(4)
        for column, value in zip(*training.table.row(word), strict=True)
    }
    null, tension = training.null.tolist(), training.tension
    counts = dict.fromkeys(table, 0.0)
    null_counts, features, log_likelihood = [0.0] * 4, 0.0, 0.0
    for src, tgt in zip(SRC, TGT, strict=True):
        m, n = len(tgt), len(src)
        joint = {}
        for alignment in itertools.product(range(n + 1), repeat=m):
            joint[alignment] = math.prod(
                prior(i, m, n, tension)[j] * (null[y] if j == 0 else table[src[j - 1], y])
                for i, (j, y) in enumerate(zip(alignment, tgt, strict=True), start=1)
            )
        total = sum(joint.values())
        log_likelihood += math.log(total)
        for alignment, probability in joint.items():
            for i, (j, y) in enumerate(zip(alignment, tgt, strict=True), start=1):
                if j == 0:
                    null_counts[y] += probability / total
                else:
                    counts[src[j - 1], y] += probability / total
                    features += probability / total * feature(i, j, m, n)

    likelihoods, found_features, by_null = training.expect()
    assert np.log(likelihoods).sum() == pytest.approx(log_likelihood, rel=1e-12)
    assert found_features == pytest.approx(features, rel=1e-12)
    assert np.bincount(training.bitext.tgt.ids, by_null, 4) == pytest.approx(null_counts, rel=1e-12)
    for word in range(4):
        for column, value in zip(*training.table.row(word), strict=True):
            assert value == pytest.approx(counts[word, int(column)], rel=1e-12)


def all_places(longest: int) -> Iterator[tuple[int, int, int]]:
    return ((i, m, n) for m in range(1, longest) for n in range(1, longest) for i in range(1, m + 1))


@pytest.mark.parametrize("tension", [LEAST_TENSION, 1.0, 4.0, MOST_TENSION])
def test_the_normaliser_and_the_mean_feature_are_those_of_the_plain_sums(tension: float) -> None:
    shapes = [*all_places(9), (1, 1, 700), (350, 700, 2), (700, 700, 699), (400, 2000, 2000)]
    places = Places(*np.array(shapes).T)
    for shape, total, mean in zip(shapes, normaliser(places, tension), expected_feature(places, tension), strict=True):
        i, m, n = shape
        features = np.array([feature(i, j, m, n) for j in range(1, n + 1)])
        weights = np.exp(tension * features)
        assert total == pytest.approx(weights.sum(), rel=1e-10), shape
        assert mean == pytest.approx(features @ weights / weights.sum(), rel=1e-7, abs=1e-12), shape


def expected_log_prior(places: Places, weights: np.ndarray, features: float, tension: float) -> float:
    return features * tension - float(weights @ np.log(normaliser(places, tension)))


def test_the_gradient_is_the_slope_and_is_zero_at_the_best_tension() -> None:
    random = np.random.default_rng(5)
    places = Places(*np.array(list(all_places(7))).T)
    weights = random.uniform(0, 1, len(places.i))
    features = float(weights @ expected_feature(places, 5.5)) + 0.02
    for tension in (0.3, 2.0, 6.0, 11.0):
        step = 1e-4
        slope = (
            expected_log_prior(places, weights, features, tension + step)
            - expected_log_prior(places, weights, features, tension - step)
        ) / (2 * step)
        assert gradient(places, weights, features, tension) == pytest.approx(slope, rel=1e-6)
    best = best_tension(places, weights, features)
    assert 5.5 < best < 6
    assert gradient(places, weights, features, best) == pytest.approx(0, abs=1e-6)
    values = [expected_log_prior(places, weights, features, best + by) for by in (-0.1, 0, 0.1)]
    assert max(values) == values[1]
    assert best_tension(places, weights, -1e9) == pytest.approx(LEAST_TENSION)
    assert best_tension(places, weights, 0.0) == pytest.approx(MOST_TENSION)


def trained(alpha: float, num_iterations: int = 8) -> tuple[tuple[np.ndarray, ...], list[float]]:
    src, tgt = Vocabulary(), Vocabulary()
    bitext = read_bitext(toy_pairs(60), src, tgt)
    settings = Settings(num_iterations, NULL, alpha)
    model, log_likelihoods = train_model(bitext, len(src), len(tgt), settings, lambda: None)
    return (*model.table.arrays, model.null, np.array([model.tension])), log_likelihoods


def test_the_log_likelihood_never_falls() -> None:
    """Without a Dirichlet prior, which makes another thing larger."""
    log_likelihoods = trained(alpha=0.0)[1]
    assert len(log_likelihoods) == 8
    assert all(later > before for before, later in itertools.pairwise(log_likelihoods))


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_numba_and_python_give_the_same_numbers(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    by_numba, log_likelihoods = trained(alpha, 3)
    monkeypatch.setattr(find_kernels, "compiled_kernels", lambda: None)
    by_python, others = trained(alpha, 3)
    assert log_likelihoods == pytest.approx(others, rel=1e-13)
    for one, other in zip(by_numba, by_python, strict=True):
        assert one == pytest.approx(other, rel=1e-10)


def test_probabilities_of_a_row_sum_to_one_at_most() -> None:
    """Variational Bayes leaves some mass out; the largest likelihood none."""
    for alpha, least in ((0.0, 0.999), (0.01, 0.8)):
        (row_starts, columns, values, null, _), _ = trained(alpha)
        sums = np.add.reduceat(values, row_starts[:-1])
        assert sums.max() < 1 + 1e-6
        assert sums.min() > least
        assert null.sum() < 1 + 1e-6
        for begin, end in itertools.pairwise(row_starts):
            assert np.all(np.diff(columns[begin:end]) > 0)
