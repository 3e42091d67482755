"""The mathematics: attention, positions, layers, the Transformer, its loss. Knows nothing of text or files."""
