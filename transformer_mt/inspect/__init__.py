"""Looking into a model, which knows nothing of it: attention weights by forward hooks, and pictures of them."""
