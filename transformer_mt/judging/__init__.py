"""Translations judged: scores with intervals, what is better where, what went wrong, and runs side by side."""
