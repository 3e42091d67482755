"""Lines of text: read from a stream, cut where they are too long, and written."""
