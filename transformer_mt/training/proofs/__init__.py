"""Proofs before the first step: what must hold of any model, shown on this very one and on a few pairs of its data."""
