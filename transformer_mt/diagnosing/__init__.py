"""Named diagnoses: what is wrong with a training, judged by what is recorded of it, while it runs and afterwards."""
