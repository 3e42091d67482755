"""What is done to translations after the search."""
