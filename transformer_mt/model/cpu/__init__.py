"""How training on a CPU computes what the model is: attention, dropout and the loss, with numba and without."""
