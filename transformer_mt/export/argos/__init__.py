"""A run as a package of Argos Translate, and our tokenizers as files of SentencePiece, which it asks for."""
