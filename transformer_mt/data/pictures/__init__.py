"""The source as a picture: lines drawn with a font, pictures read from files, and their patches."""
