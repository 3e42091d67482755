"""The size of a vocabulary, one that gets new words, and what a tokenizer remembers of its own."""
