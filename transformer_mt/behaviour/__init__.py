"""Tests of a model's behaviour: what must hold of its translations, whatever their scores (Ribeiro et al. 2020)."""
