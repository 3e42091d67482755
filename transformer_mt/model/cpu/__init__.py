"""Attention, dropout and the loss in training on a CPU, with numba and without."""
