"""Saving and going on: checkpoints, the settings that may change, and the proof that resuming is exact."""
