"""The grammar of the built-in English-Spanish corpus, from which its files were made."""
