"""Updates that went wrong: their files, and their replay with a look at every module."""
