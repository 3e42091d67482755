"""What a terminal asks for: its width, colour or none, UTF-8, and words as they were typed."""

import os
import shutil
import sys


def typed(text: str) -> str:
    """A word of the command line. Its bytes that are not UTF-8, which come as lone surrogates, become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def remark(text: str) -> None:
    """A line on standard error, where it can be written; what the command is for does not depend on it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # what waits to be written would fail again at the end, and change the exit status
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def utf8_output() -> None:
    """Standard output writes the same bytes whatever the terminal's locale and platform; names of files as they are."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")


def output_width(least: int = 80, most: int = 120) -> int:
    """The width of the terminal within these bounds; 100 where there is none."""
    return max(least, min(most, shutil.get_terminal_size((100, 24)).columns))


def output_is_coloured() -> bool:
    """Whether standard output is a terminal, and NO_COLOR (no-color.org) is not set to anything."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
