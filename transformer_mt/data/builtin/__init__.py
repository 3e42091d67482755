"""The built-in English-Spanish corpus: sentence pairs drawn from a grammar, the same on every machine."""

from transformer_mt.data.builtin.corpus import SPLITS, Example, builtin_examples, builtin_pairs, held_out, words

__all__ = ["SPLITS", "Example", "builtin_examples", "builtin_pairs", "held_out", "words"]
