"""What fits the memory, and what is done where it does not."""
