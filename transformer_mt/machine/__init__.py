"""What the computations run on: device, precision, memory. Knows nothing of models."""
