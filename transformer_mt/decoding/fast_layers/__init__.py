"""A model made fast for decoding: weights laid out once, in fewer bits, and steps without launches."""
