"""Training pairs that differ from epoch to epoch: other pieces of words by BPE-dropout, both directions at first."""
