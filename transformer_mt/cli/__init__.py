"""The command line: one file per verb. Parses, calls one function, prints; imports what is heavy when it is needed."""
