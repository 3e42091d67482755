"""The training loop and what belongs to it: schedule, device, checkpoints, monitoring."""
