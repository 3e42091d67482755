"""Trained models in other engines' formats: each option exactly, or refused by its name."""
