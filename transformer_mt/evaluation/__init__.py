"""The quality of a model: nll and ppl (`nll`), BLEU and chrF (`metrics`), both on a split or two files (`evaluate`)."""
