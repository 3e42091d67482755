"""Files of lines that a user names: opened for reading as they come, and for writing after all else is well."""

import gzip
import io
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from transformer_mt.cli.terminal import read_output, remark
from transformer_mt.errors import UserError
from transformer_mt.paths import is_file
from transformer_mt.storage.files import writing

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import ByteStream

STANDARD = Path("-")  # the name of standard input and output, as in most commands


@contextmanager
def open_lines(path: Path, option: str) -> "Iterator[ByteStream]":
    """The bytes of a file or a pipe, or of standard input for `-`, unpacked where gzip packed them. UserError, which
    names the option, where it cannot be opened.
    """
    if path == STANDARD:
        if sys.__stdin__ is None:
            raise UserError(f"Standard input is closed. Name a file after {option}.")
        # What is typed into a console on Windows comes from `open` as UTF-8, from `io.FileIO` in a code page.
        with _plain(open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)) as lines:
            yield lines
        return
    try:
        stream = io.FileIO(str(path))  # it has a name for messages, packed or not
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}. Check the name after {option}.") from None
    with stream, _plain(stream) as lines:
        yield lines


def is_packed(lines: "ByteStream") -> bool:
    """Whether what `open_lines` gave is unpacked on the way."""
    return isinstance(lines, gzip.GzipFile)


def rest_of(path: Path | None, packed: bool, first: int) -> str:
    """The command that prints a file from line `first` on; None stands for what standard input was."""
    name = "INPUT" if path is None else shlex.quote(str(path))
    return f"zcat {name} | tail -n +{first}" if packed and path else f"tail -n +{first} {name}"


@dataclass(frozen=True)
class PairedFiles:
    """Files of sources and references, line by line; see `open_both`."""

    paths: tuple[Path, Path]
    streams: "tuple[ByteStream, ByteStream]"

    def chunks(self, size: int) -> Iterator[list[tuple[str, str]]]:
        """The pairs of lines, up to `size` at a time; see `chunk_pairs`."""
        from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_pairs

        names = name_of(self.paths[0]), name_of(self.paths[1])
        src, ref = (
            chunk_lines(lines, size, partial(report_damaged, name), name, onwards="> TEXT_FILE")
            for lines, name in zip(self.streams, names, strict=True)
        )
        return chunk_pairs(src, ref, names)

    def rest(self, verb: str, first: int) -> str:
        """The command that works on both from line `first` on, in shells with process substitution."""
        files = zip(self.paths, self.streams, strict=True)
        src, ref = (rest_of(None if path == STANDARD else path, is_packed(lines), first) for path, lines in files)
        return f"tmt {verb} --src <({src}) --ref <({ref}) …"


@contextmanager
def open_both(src: Path, ref: Path) -> Iterator[PairedFiles]:
    """The files after `--src` and `--ref`, each as `open_lines` opens it. UserError where both are standard input."""
    if src == ref == STANDARD:
        raise UserError("--src and --ref are both -. Name a file for one of them.")
    with open_lines(src, "--src") as src_lines, open_lines(ref, "--ref") as ref_lines:
        yield PairedFiles((src, ref), (src_lines, ref_lines))


def name_of(path: Path) -> str:
    """What a message calls an input."""
    return "standard input" if path == STANDARD else str(path)


def report_damaged(name: str, number: int, first_line: int = 1) -> None:
    """Say once of an input, which begins with line `first_line` of a text, that its line `number` is not UTF-8."""
    where = f"{name}, line {number + first_line - 1}"
    remark(f"{where}: not UTF-8; wrong bytes, here and in any later line, are read as U+FFFD")


def _plain(stream: io.FileIO) -> "AbstractContextManager[ByteStream]":
    """The stream, unpacked where its first bytes say gzip. A pipe cannot be read twice, so it is looked at later."""
    from transformer_mt.data.sources.files import GZIP_MAGIC

    if not stream.seekable():
        return nullcontext(stream)
    begin = stream.tell()
    start = stream.read(len(GZIP_MAGIC))
    stream.seek(begin)
    return gzip.open(stream) if start == GZIP_MAGIC else nullcontext(stream)


@contextmanager
def open_output(path: Path | None, *inputs: "ByteStream", others: Iterable[Path] = ()) -> Iterator[TextIO]:
    """The file of the results, emptied, or standard output. UserError where it is one of the inputs, or of the `others`
    that are read beside them, or cannot be written.
    """
    if path is None or path == STANDARD:
        if sys.__stdout__ is None:
            raise UserError("Standard output is closed. Name a file with --output.")
        yield read_output()
        return
    # Opening the file would empty it before it is read.
    if is_file(path):
        if any(os.path.samestat(os.fstat(lines.fileno()), path.stat()) for lines in inputs):
            raise UserError(f"--output {path} is the input itself. Name another file.")
        if any(is_file(other) and path.samefile(other) for other in others):
            raise UserError(f"--output {path} is a file that another option names to be read. Name another file.")
    with writing(path, "Check --output and the disk."), path.open("w", encoding="utf-8", newline="\n") as sink:
        yield sink
