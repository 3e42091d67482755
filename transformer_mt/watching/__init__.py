"""A page in the browser that follows a training: what the folder of a run says, read again and again."""
