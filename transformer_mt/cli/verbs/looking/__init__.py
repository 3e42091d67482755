"""The verbs that look at runs and into models."""
