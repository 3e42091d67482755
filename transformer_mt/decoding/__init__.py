"""From weights and text to text: loading a run, search over any step function, batches on all cores, `Translator`."""
