"""The sections of a configuration, one file each: every key with its type, its default and what is allowed."""
