"""Text to batches of ids: sources, corpus, tokenizers, batching. Knows nothing of models."""
