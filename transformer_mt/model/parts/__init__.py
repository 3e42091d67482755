"""The parts of a layer: attention, feed-forward, norm, positions, dropout."""
