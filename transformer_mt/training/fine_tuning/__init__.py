"""A training that begins with the weights of a finished run: what is taken of it, and what does not fit."""
