"""Hidden words filled in by a model of `tmt pretrain`."""
