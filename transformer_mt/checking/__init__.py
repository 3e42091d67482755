"""The corpus doctor: what is wrong with sentence pairs, line by line and in sum; nothing is dropped or changed."""
