"""The output for a stream of lines: whole lines, counted, so that a user who stops it is told how to go on."""

import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from transformer_mt.cli.line_files import open_output
from transformer_mt.cli.terminal import lead_nowhere, read_output
from transformer_mt.errors import LineError, UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from transformer_mt.decoding.lines.line_stream import ByteStream


class LineSink:
    """A file, or standard output where `path` is None.

    `rest` says by which command the input is worked on from a line on. `results` is what one line gives, in the plural.
    """

    def __init__(
        self, stream: TextIO, path: Path | None, rest: Callable[[int], str], results: str = "translations"
    ) -> None:
        self.stream = stream
        self.path = path
        self.rest = rest
        self.results = results
        # The lines of the input whose results are written whole, and the bytes of these results in a file.
        # Both change in one statement, because Ctrl-C may come between any two.
        self._whole = 0, 0

    @property
    def num_done(self) -> int:
        """The number of lines of the input whose results are written whole."""
        return self._whole[0]

    def bar(self, doing: str, is_waited_for: bool = False) -> "tqdm":
        """A bar over the input's lines, hidden where a person waits for each of them or sees the results themselves."""
        from tqdm import tqdm

        hidden = is_waited_for or not sys.stderr.isatty() or self.stream.isatty()
        return tqdm(desc=doing, unit=" lines", disable=hidden)

    def write(self, results: Iterable[str], num_lines: int) -> None:
        """Write the results of `num_lines` more lines. UserError where that fails; BrokenPipeError where the
        reader of standard output has gone.
        """
        try:
            self.stream.writelines(f"{line}\n" for line in results)
            self.stream.flush()
            size = os.lseek(self.stream.fileno(), 0, os.SEEK_CUR) if self._is_file() else 0
            self._whole = self.num_done + num_lines, size
        except OSError as error:
            if self.path is None and isinstance(error, BrokenPipeError):
                raise
            self.cut()
            lead_nowhere(self.stream)  # text that waits would fail again at the end
            name = self.path or "Standard output"
            check = (
                "check --output and the disk" if self.path else "free some space there, or name a file with --output"
            )
            nothing = f"It has the {self.results} of no line for certain: {check}, and begin again."
            advice = self.way_on("Free some space") if self.num_done else nothing
            raise UserError(f"{name} cannot be written: {error.strerror or error}. {advice}") from None

    def cut(self) -> None:
        """Cut the file after its last whole line, and write nothing more to it."""
        if self._is_file():
            with suppress(OSError):
                os.ftruncate(self.stream.fileno(), self._whole[1])
            lead_nowhere(self.stream)

    def way_on(self, first: str = "") -> str:
        """Sentences on how far the results are, and the command that adds the others."""
        lines = "first line" if self.num_done == 1 else f"first {self.num_done:,} lines"
        done = f"the {self.results} of the {lines}"
        there = f"{self.path} holds {done}" if self.path else f"Standard output has {done}; delete what follows them"
        write = shlex.quote(str(self.path)) if self.path else "OUTPUT"
        go_on = f"{first}, and go on" if first else "Go on"
        return f"{there}. {go_on} with the same options: {self.rest(self.num_done + 1)} >> {write}"

    def _is_file(self) -> bool:
        """Whether this command began the file. Standard output may hold the text of another, which stays as it is."""
        return self.path is not None and stat.S_ISREG(os.fstat(self.stream.fileno()).st_mode)


@contextmanager
def open_sink(
    path: Path | None,
    inputs: "Sequence[ByteStream]",
    rest: Callable[[int], str],
    results: str = "translations",
    is_told: bool = True,
    others: Iterable[Path] = (),
) -> Iterator[LineSink]:
    """The sink of `--output`, or standard output; see `LineSink` and `open_output`. On Ctrl-C, and where a line is at
    fault, the file ends with a whole line, and, if `is_told`, a user is told how to go on. Open it last, so that an
    error before leaves an earlier file as it was.
    """
    with open_output(path, *inputs, others=others) as stream:
        sink = LineSink(stream, None if stream is read_output() else path, rest, results)
        try:
            yield sink
        except KeyboardInterrupt:
            sink.cut()
            raise KeyboardInterrupt(*[sink.way_on()] * (is_told and sink.num_done > 0)) from None
        except LineError as error:
            sink.cut()
            raise UserError(f"{error}{f' {sink.way_on()}' * (is_told and sink.num_done > 0)}") from None
