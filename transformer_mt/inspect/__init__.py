"""Looking into a model by forward hooks: attention weights, traces, and pictures. The model code knows none of it."""
