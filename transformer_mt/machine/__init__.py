"""What the computations run on: device, precision, memory, processes that work together. Knows nothing of models."""
