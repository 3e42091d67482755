"""What keeps a model from learning its training pairs by heart, as far as it is not a part of the model."""
