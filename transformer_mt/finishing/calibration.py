"""Numbers that a model gives, made probabilities that can be trusted: of what gets 0.8, eight in ten are so.

A logistic regression makes one score of several features. Then the share of right ones among validation data of like
score is what a score is worth, made monotone by pooling neighbours that stand the wrong way round (isotonic regression;
Zadrozny and Elkan 2002).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RIDGE = 1.0  # pulls the weights to 0, by as much as some few examples do
STEPS = 50  # of Newton's method; it takes some ten
EXAMPLES_A_BIN, MOST_BINS = 30, 100
ECE_BINS = 10
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Calibrator:
    """From features to the probability of being right, 0 to 1.

    The score of a row of features is (row - mean) / scale * weights + bias. `scores` ascend and `probabilities` do not
    descend. Between two of them log-odds lie on a line; beyond the ends they go on as those of the regression, 1 by 1
    with the score, because what is unlike all validation data must not be as sure as the least sure of these.
    """

    mean: Array
    scale: Array
    weights: Array
    bias: float
    scores: Array
    probabilities: Array

    @classmethod
    def fit(cls, features: ArrayLike, outcomes: ArrayLike) -> "Calibrator":
        """features (examples, num_features), outcomes (examples,): 1 for right, 0 for wrong, or the share that is
        right.
        """
        rows, outcome = np.asarray(features, np.float64), np.asarray(outcomes, np.float64)
        assert len(rows) == len(outcome) > 0, "there is an outcome for each example"
        mean, scale = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        weights, bias = fit_logistic((rows - mean) / scale, outcome)
        scores, probabilities = fit_monotone((rows - mean) / scale @ weights + bias, outcome)
        return cls(mean, scale, weights, bias, scores, probabilities)

    def __call__(self, features: ArrayLike) -> Array:
        """The probabilities (examples,) of features (examples, num_features)."""
        rows = np.asarray(features, np.float64)
        if not rows.size:
            return np.zeros(0)
        scores = (rows - self.mean) / self.scale @ self.weights + self.bias
        within = np.clip(scores, self.scores[0], self.scores[-1])
        found = np.interp(within, self.scores, log_odds(self.probabilities)) + (scores - within)
        return 1 / (1 + np.exp(-np.clip(found, -30, 30)))

    def to_json(self) -> dict[str, Any]:
        """The numbers, for a file."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, numbers: dict[str, Any]) -> "Calibrator":
        """The way back. Raises KeyError, TypeError or ValueError for what `to_json` did not make."""
        arrays = {name: np.array(numbers[name], np.float64) for name in cls.__dataclass_fields__ if name != "bias"}
        if any(array.ndim != 1 or not np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("numbers are missing")
        if not len(arrays["mean"]) == len(arrays["scale"]) == len(arrays["weights"]):
            raise ValueError("features are missing")
        if not 0 < len(arrays["scores"]) == len(arrays["probabilities"]):
            raise ValueError("scores are missing")
        if ((arrays["probabilities"] <= 0) | (arrays["probabilities"] >= 1)).any():
            raise ValueError("a probability is none")
        return cls(bias=float(numbers["bias"]), **arrays)


def fit_logistic(features: Array, outcomes: Array) -> tuple[Array, float]:
    """The weights (num_features,) and the bias that make the outcomes (examples,) likeliest, less `RIDGE` / 2 times the
    squares of the weights. By Newton's method, each step halved until it is one forward.
    """
    rows = np.column_stack([features, np.ones(len(features))])
    ridge = np.append(np.full(features.shape[1], RIDGE), 1e-6)
    solution = np.zeros(rows.shape[1])

    def loss(weights: Array) -> float:
        scores = rows @ weights
        return float((np.logaddexp(0.0, scores) - outcomes * scores).sum() + (ridge * weights**2).sum() / 2)

    for _ in range(STEPS):
        probabilities = 1 / (1 + np.exp(-np.clip(rows @ solution, -500, 500)))
        gradient = rows.T @ (probabilities - outcomes) + ridge * solution
        curvature = (rows * (probabilities * (1 - probabilities))[:, None]).T @ rows + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        before = loss(solution)
        while loss(solution - step) > before and np.abs(step).max() > 1e-9:
            step /= 2
        solution = solution - step
        if np.abs(step).max() < 1e-7:
            break
    return solution[:-1], float(solution[-1])


def fit_monotone(scores: Array, outcomes: Array) -> tuple[Array, Array]:
    """Some ascending scores, and for each the share that is right there, which does not descend.

    The examples are cut, in the order of their scores, into bins of equal number. Neighbours whose shares descend are
    made one. Half a right one and half a wrong one are added to each, so that nothing gets 0 or 1.
    """
    order = np.argsort(scores, kind="stable")
    num_bins = max(1, min(MOST_BINS, len(scores) // EXAMPLES_A_BIN))
    pools: list[list[float]] = []  # of each the examples, the right ones and the sum of scores
    for part in np.array_split(order, num_bins):
        pools.append([float(len(part)), float(outcomes[part].sum()), float(scores[part].sum())])
        while len(pools) > 1 and _share(pools[-2]) >= _share(pools[-1]):
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    return np.array([pool[2] / pool[0] for pool in pools]), np.array([_share(pool) for pool in pools])


def _share(pool: list[float]) -> float:
    return (pool[1] + 0.5) / (pool[0] + 1)


def log_odds(probability: ArrayLike) -> Array:
    """log p / (1 - p), within 40."""
    inside = np.clip(np.asarray(probability, np.float64), 1e-15, 1 - 1e-15)
    return np.log(inside / (1 - inside))


def calibration_error(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """The expected calibration error (Naeini et al. 2015), 0 to 1.

    Examples are put into ten bins by their probability, each a tenth wide; the last holds 1 too. The error is the mean
    over the examples of the distance, in their bin, between the mean probability and the share that is right.
    """
    given, outcome = np.asarray(probabilities, np.float64), np.asarray(outcomes, np.float64)
    bins = np.minimum((given * ECE_BINS).astype(int), ECE_BINS - 1)
    distances = np.bincount(bins, given - outcome, ECE_BINS)
    return float(np.abs(distances).sum() / len(given))
