"""The kinds of faults: the table of all, and how each is found."""
