"""From weights and text to text: checkpoints read, search over any step function, batches shared out, `Translator`."""
