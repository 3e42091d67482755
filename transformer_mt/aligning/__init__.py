"""Which word of a target sentence translates which word of its source: a statistical aligner, trained on the pairs."""
