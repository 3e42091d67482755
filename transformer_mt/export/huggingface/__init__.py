"""A run for `transformers`: the folder, the weights under its names, and the tokenizer as its own."""
