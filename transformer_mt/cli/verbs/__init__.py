"""The verbs of `tmt`, one file each."""
