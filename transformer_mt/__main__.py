"""`python -m transformer_mt` is the same as `tmt`."""

from transformer_mt.cli.start import main

main()
