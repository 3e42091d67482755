"""An encoder alone, which says of each position what stands there (Devlin et al. 2019)."""
