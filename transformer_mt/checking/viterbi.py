"""The likeliest path of states through lines, where each change costs as much (Viterbi)."""

import numpy as np
from numpy.typing import NDArray


def likeliest_states(scores: NDArray[np.float64], cost: float, first: int | None = 0) -> NDArray[np.int64]:
    """The path of the largest sum of scores, (num_lines,), in which every change costs as much, and so does a beginning
    in another state than `first`.
    """
    num_lines, num_states = scores.shape
    came_from = np.zeros((num_lines, num_states), np.int16)
    best = np.zeros(num_states) if first is None else np.where(np.arange(num_states) == first, 0.0, -cost)
    stay = np.arange(num_states)
    for line in range(num_lines):
        top = int(best.argmax())
        changes = best[top] - cost > best
        came_from[line] = np.where(changes, top, stay)
        best = np.where(changes, best[top] - cost, best) + scores[line]
    path = np.zeros(num_lines, np.int64)
    state = int(best.argmax())
    for line in range(num_lines - 1, -1, -1):
        path[line] = state
        state = int(came_from[line, state])
    return path
