"""Synthetic training pairs: real lines with a translation by a model, in order, and gone on with after a kill."""
