"""Calibration: data whose probabilities are known come back with them."""

import json

import numpy as np
import pytest

from transformer_mt.finishing.calibration import Calibrator, calibration_error, fit_logistic, fit_monotone


def drawn(num: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, of which two matter; the true probability, which is no logistic function of them; and outcomes."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(num, 3)) * [1.0, 20.0, 3.0] + [0.0, 5.0, -7.0]
    true = 0.2 + 0.6 * (1 / (1 + np.exp(-3 * (features[:, 0] + (features[:, 1] - 5) / 20)))) ** 3
    return features, true, (draw.random(num) < true).astype(float)


def test_known_probabilities_come_back() -> None:
    features, _, outcomes = drawn(30_000, 1)
    fitted = Calibrator.fit(features, outcomes)
    others, true, other_outcomes = drawn(30_000, 2)
    found = fitted(others)
    assert np.abs(found - true).mean() < 0.02  # of 300 examples a bin, whose shares are some 0.025 off by chance
    assert calibration_error(found, other_outcomes) < 0.02
    # The regression alone is off, so that it is the shares of right ones that make it right.
    alone = 1 / (1 + np.exp(-((others - fitted.mean) / fitted.scale @ fitted.weights + fitted.bias)))
    assert calibration_error(alone, other_outcomes) > 0.03


def test_shares_come_back_as_probabilities_do() -> None:
    features, true, _ = drawn(20_000, 1)
    found = Calibrator.fit(features, true)(features)
    assert np.abs(found - true).mean() < 0.015


def test_a_better_score_never_has_a_lower_probability_within_the_data_or_beyond() -> None:
    draw = np.random.default_rng(3)
    fitted = Calibrator.fit(draw.normal(size=(400, 1)), draw.random(400) < 0.3)
    line = np.linspace(-50, 50, 2001)[:, None] * np.sign(fitted.weights)
    found = fitted(line)
    assert (np.diff(found) >= 0).all()
    assert 0 < found[0] < found[-1] < 1


def test_beyond_the_data_it_goes_on_by_the_odds_of_the_regression() -> None:
    fitted = Calibrator(np.zeros(1), np.ones(1), np.ones(1), 0.0, np.array([0.0, 2.0]), np.array([0.5, 0.8]))
    assert fitted([[0.0], [2.0], [1.0]]) == pytest.approx([0.5, 0.8, 1 / (1 + 4**-0.5)])
    assert fitted([[-np.log(3)], [2 + np.log(2)]]) == pytest.approx([0.25, 8 / 9])


def test_the_regression_is_at_the_top_of_its_likelihood() -> None:
    """Less the ridge: the gradient there is zero."""
    features, _, outcomes = drawn(500, 4)
    rows = (features - features.mean(axis=0)) / features.std(axis=0)
    weights, bias = fit_logistic(rows, outcomes)
    missed = 1 / (1 + np.exp(-(rows @ weights + bias))) - outcomes
    assert rows.T @ missed + weights == pytest.approx(np.zeros(3), abs=1e-5)
    assert missed.sum() == pytest.approx(0, abs=1e-4)


def test_what_tells_all_apart_has_finite_weights() -> None:
    weights, bias = fit_logistic(np.arange(-5.0, 6.0)[:, None], (np.arange(11) > 5).astype(float))
    assert np.isfinite([*weights, bias]).all()
    assert weights[0] > 0.5


def test_neighbours_that_descend_are_pooled_by_hand() -> None:
    """Two bins of 30: 20 right of the lower scores, 10 of the higher, so that they are one, of 30 in 60."""
    outcomes = np.array([1.0] * 20 + [0.0] * 10 + [1.0] * 10 + [0.0] * 20)
    scores, probabilities = fit_monotone(np.arange(60.0), outcomes)
    assert scores == pytest.approx([29.5])
    assert probabilities == pytest.approx([30.5 / 61])
    scores, probabilities = fit_monotone(np.arange(60.0), 1 - outcomes)
    assert scores == pytest.approx([14.5, 44.5])
    assert probabilities == pytest.approx([10.5 / 31, 20.5 / 31])


def test_the_error_of_a_case_by_hand() -> None:
    """In [0.2, 0.3): 0.22 and 0.28, of which one is right, |0.25 - 0.5|; in [0.9, 1]: 0.9 and 1, of which both are."""
    assert calibration_error([0.22, 0.9, 0.28, 1.0], [1, 1, 0, 1]) == pytest.approx(0.5 * 0.25 + 0.5 * 0.05)
    assert calibration_error([1.0, 0.0], [1, 0]) == 0
    assert calibration_error([0.95], [0]) == pytest.approx(0.95)


def test_a_file_gives_the_same_back() -> None:
    features, _, outcomes = drawn(300, 5)
    fitted = Calibrator.fit(features, outcomes)
    numbers = json.loads(json.dumps(fitted.to_json()))
    assert np.array_equal(Calibrator.from_json(numbers)(features), fitted(features))


@pytest.mark.parametrize(
    "change", [{"scores": []}, {"weights": [1.0]}, {"mean": [float("nan")] * 3}, {"probabilities": None}, {"bias": "a"}]
)
def test_damaged_numbers_are_refused(change: dict) -> None:
    features, _, outcomes = drawn(300, 5)
    numbers = Calibrator.fit(features, outcomes).to_json() | change
    with pytest.raises((ValueError, TypeError, KeyError)):
        Calibrator.from_json(numbers)
