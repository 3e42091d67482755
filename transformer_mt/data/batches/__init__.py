"""From ids to batches, whether a corpus is known as a whole or read as a stream."""
