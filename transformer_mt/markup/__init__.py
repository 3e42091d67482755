"""HTML: the tags are taken out of a text before it is translated, and put back along the words' alignment."""
