"""Looking into a model, which knows nothing of it: attention weights and traces by forward hooks, and pictures."""
