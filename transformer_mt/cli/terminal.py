"""The terminal: words as they were typed, output in UTF-8, remarks, width and colour."""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


def typed(text: str) -> str:
    """A word of the command line. Bytes that are not UTF-8 come as lone surrogates; they become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def remark(text: str) -> None:
    """Write a line on standard error. Where that fails the line is lost, and the command goes on."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # the text that waits would fail again at the end, and change the exit status
        lead_nowhere(sys.stderr)


def lead_nowhere(stream: TextIO) -> None:
    """Lead a file or a pipe nowhere: text that is written from now on, or waits, is lost and raises nothing."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


class _Outlived:
    """A stream whose reader may go away. Text for it is then lost, and that is no error."""

    def __init__(self, stream: TextIO, each: bool) -> None:
        self.stream = stream
        self.each = each  # whether each text is sent on at once

    def write(self, text: str) -> int:
        with self._watched():
            self.stream.write(text)
            if self.each:
                self.stream.flush()
        return len(text)

    def flush(self) -> None:
        with self._watched():
            self.stream.flush()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            lead_nowhere(self.stream)
        except OSError as error:
            lead_nowhere(self.stream)  # the text that waits would fail again at the end
            raise OSError(error.errno, error.strerror, "standard output") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def set_up_output() -> None:
    """Let standard output write the same bytes on every platform and under every locale, and file names as they are.

    From now on its reader may go away, as in `tmt evaluate | head -1`: the command goes on, saves its results, and ends
    with the status that it would have had.
    """
    stream = sys.stdout
    raw = getattr(stream, "buffer", None)
    is_unbuffered = isinstance(raw, io.FileIO)  # under PYTHONUNBUFFERED
    if isinstance(raw, io.FileIO):
        # Where the system takes only a part of a text, on a full disk for example, Python would lose the rest silently.
        stream = open(raw.fileno(), "w", closefd=False)  # noqa: SIM115, open to the end; the descriptor is another's
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    sys.stdout = cast(TextIO, _Outlived(stream, is_unbuffered))


def read_output() -> TextIO:
    """Standard output for text that is useless without a reader: once that has gone, writing raises BrokenPipeError."""
    return sys.stdout.stream if isinstance(sys.stdout, _Outlived) else sys.stdout


def output_width() -> int:
    """The width of the terminal, from 80 to 120 characters; 100 where there is no terminal."""
    return max(80, min(120, shutil.get_terminal_size((100, 24)).columns))


def output_is_coloured() -> bool:
    """Whether standard output is a terminal, and NO_COLOR (no-color.org) is not set to anything."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
