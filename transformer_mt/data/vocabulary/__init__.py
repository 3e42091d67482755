"""The size of a vocabulary."""
