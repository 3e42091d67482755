"""Search over any step function: greedy, beam, and their rules."""
