"""What a check found, as text, JSON lines, a page, and cleaned files."""
