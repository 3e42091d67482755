"""What the measuring scripts share: their command line, the opponents, memory and tables."""
