"""What a training will cost, before anything is trained: by its config and data, and by a few steps of it."""
