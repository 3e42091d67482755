"""What the computations run on: device, precision, memory, numba, processes that work together. Knows no models."""
