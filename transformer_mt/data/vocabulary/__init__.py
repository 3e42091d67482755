"""The size of a vocabulary, and one that gets new words."""
