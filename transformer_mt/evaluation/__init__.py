"""How good a model is: nll and ppl (`nll`), BLEU and chrF (`metrics`), both of a split or two files (`evaluate`)."""
