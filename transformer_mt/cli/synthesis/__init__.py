"""What `tmt backtranslate` and `tmt distill` share."""
