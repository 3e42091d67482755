"""From bytes on the disk to lines of text. Whatever goes wrong is told with the file and the line.

A line ends at `\\n` or `\\r\\n` and nowhere else: a lone `\\r`, U+0085, U+2028, form feed and NUL are text.
"""

import bz2
import gzip
import hashlib
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.longest_line import BEYOND, LONGEST_LINE
from transformer_mt.errors import UserError

BLOCK_BYTES = 2**19
MARK = "\ufeff"  # of the byte order
UTF8_BOM = MARK.encode()
GZIP_MAGIC = b"\x1f\x8b"
BZ2_MAGIC = tuple(b"BZh%d1AY&SY" % level for level in range(1, 10))
XZ_MAGIC = b"\xfd7zXZ\0"


class _Unpacking(RawIOBase):
    """What bzip2 or xz packed, in one stream or several, with zeros between them. Unlike Python's own readers, which
    take anything else behind a stream for the end of the file, it raises for that.
    """

    def __init__(self, file: BinaryIO, begin: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self._file, self._begin, self._stream = file, begin, begin()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`. EOFError, which says why, where the file is not whole."""
        data = b""
        while not data:
            packed = b""
            if self._stream.eof:
                if not (packed := self._behind_stream()):
                    return 0
                self._stream = self._begin()
            elif self._stream.needs_input and not (packed := self._file.read(BLOCK_BYTES)):
                raise EOFError("it ends within its packed text")
            try:
                data = self._stream.decompress(packed, len(buffer))
            except (OSError, lzma.LZMAError) as error:
                raise EOFError(str(error)) from None
        buffer[: len(data)] = data
        return len(data)

    def _behind_stream(self) -> bytes:
        """What is next in the file but zeros; nothing at its end."""
        rest = self._stream.unused_data
        while not (found := rest.lstrip(b"\0")) and (rest := self._file.read(BLOCK_BYTES)):
            pass
        return found


UNPACKERS: dict[str, Callable[[Any], BufferedIOBase]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": lambda file: BufferedReader(_Unpacking(file, bz2.BZ2Decompressor)),
    ".xz": lambda file: BufferedReader(_Unpacking(file, lzma.LZMADecompressor)),
}
MAGIC = {GZIP_MAGIC: ".gz", **dict.fromkeys(BZ2_MAGIC, ".bz2"), XZ_MAGIC: ".xz"}  # first bytes of packed files
# What names another data.root, which some commands that read a run's data have no option for.
CHANGED_BY = (
    "data.root=FOLDER where a command takes --config or trains, --data-root FOLDER where it has that option, and else "
    "data.root in the run's config.yaml"
)
ARCHIVES = (".zip", ".7z", ".zst", ".tar", ".tgz")


class NoRootError(UserError):
    """The folder `data.root` is missing, and so is every file whose path starts there."""


def source_path(name: str, data: DataConfig) -> Path:
    """The path that a source names: relative ones start at `data.root`, `~` is the home folder."""
    if "\0" in data.root + name:
        raise UserError(f"{name!r}: no path holds a NUL character. Take it out of the name or of data.root.")
    try:
        return Path(data.root).expanduser() / Path(name).expanduser()
    except RuntimeError as error:  # ~somebody who does not exist
        raise UserError(f"{name}: {error} Write the path out in full.") from None


def source_file(name: str, data: DataConfig) -> Path:
    """`source_path` of a file. UserError where a relative name leads to none, which says where it was looked for; a
    NoRootError where there is no such folder.
    """
    path = source_path(name, data)
    if not Path(name).expanduser().is_absolute() and _is_missing(path):
        root = Path(data.root).expanduser()
        if _is_missing(root):
            raise NoRootError(
                f"data.root: there is no folder {root.absolute()}. Name the one that holds the data: {CHANGED_BY}."
            )
        raise UserError(
            f"There is no file {path.absolute()}. Check the name. Relative paths start at data.root; to change it: "
            f"{CHANGED_BY}."
        )
    return path


def _is_missing(path: Path) -> bool:
    """Whether there is no such name. Where the system does not say, whoever reads the file is told why."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what the system says about `path` while the body reads it into a `UserError`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"There is no file {path.absolute()}. Check the name and the folder.") from None
    except PermissionError:
        raise UserError(f"{path} may not be read: permission denied. Give yourself the right to read it.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a whole gzip, bz2 or xz file: {error}. Fetch or compress it again.") from None
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path} cannot be read: {reason}. Check the file and the disk it is on.") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedReader]:
    """The bytes of a regular file as they are on disk."""
    with reading(path):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{path} is a folder, not a file. Name a file in it.")
        if not stat.S_ISREG(mode):
            raise UserError(f"{path} is a pipe or a device, which cannot be read twice. Write it to a file first.")
        with path.open("rb") as file:
            yield file


def file_digest(path: Path) -> str:
    """A hash of the bytes on the disk."""
    with open_bytes(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def file_size(path: Path) -> int:
    """The number of bytes on the disk."""
    with open_bytes(path) as file:
        return os.fstat(file.fileno()).st_size


def suffix_of(path: Path) -> str:
    """How the name of a file ends, before the ending of the program that packed it."""
    return Path(path.stem).suffix if path.suffix in UNPACKERS else path.suffix


@contextmanager
def open_plain(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file, unpacked when its name ends in `.gz`, `.bz2` or `.xz`, or its first bytes say so.

    Raises UserError for an archive, which may hold several files, and for other packed files.
    """
    with open_bytes(path) as file:
        if suffix_of(path) in ARCHIVES:
            raise UserError(f"{path} is an archive. Unpack it; a single file may stay packed by gzip, bz2 or xz.")
        start = file.read(max(map(len, MAGIC)))
        file.seek(0)
        by_content = next((ending for magic, ending in MAGIC.items() if start.startswith(magic)), "")
        unpack = UNPACKERS.get(path.suffix, UNPACKERS.get(by_content))
        if unpack is None:
            yield file
            return
        with unpack(file) as unpacked:
            yield unpacked


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with their line ends, without the byte order mark. The last line needs no end.

    `BEYOND` stands for a line that is too long, with a quote behind it where the line holds an odd number of quotes.
    """
    for block in _whole_lines(path):
        yield from BytesIO(block)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The same lines, some at a time in one piece."""
    with open_plain(path) as file:
        is_first = True
        while block := file.read(BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block = _with_rest(block, file)
            if is_first:
                block = block.removeprefix(UTF8_BOM)
                is_first = False
            if block:  # the mark alone is an empty file
                yield block


def _with_rest(block: bytes, file: BufferedIOBase) -> bytes:
    """The block with the rest of its last line. Only a piece of a line that is too long is in memory at once."""
    begin = block.rfind(b"\n") + 1
    longest = LONGEST_LINE + len(b"\r\n")
    rest = file.readline(longest)
    if len(block) - begin + len(rest) <= longest:
        return block + rest
    num_quotes = block.count(b'"', begin) + rest.count(b'"')
    while rest and not rest.endswith(b"\n"):
        rest = file.readline(BLOCK_BYTES)
        num_quotes += rest.count(b'"')
    return block[:begin] + BEYOND.encode() + b'"' * (num_quotes % 2) + b"\n"


def strip_line_end(line: str) -> str:
    """The line without the one `\\n` or `\\r\\n` that ends it."""
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def write_line(file: TextIO, text: str) -> None:
    """Write the line that `read_lines` reads as this text. A return before the line's end would be taken for a part of
    it, and U+FEFF at the beginning of a file for its mark: a second one is not.
    """
    mark = MARK if text.startswith(MARK) and file.tell() == 0 else ""
    file.write(f"{mark}{text}\r\n" if text.endswith("\r") else f"{mark}{text}\n")


def decode(raw: bytes, path: Path, number: int) -> str:
    """The text of line `number`. Raises `UserError` where the bytes are not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        utf16 = number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        guess = "UTF-16" if utf16 else "LATIN1"
        raise UserError(
            f"{path}, line {number}: the bytes are not UTF-8 (0x{raw[error.start]:02x} at byte {error.start + 1} "
            f"of the line). Convert the file, for example: iconv -f {guess} -t UTF-8 {path} > {path.name}.utf8"
        ) from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """`(line number from 1, text without its line end)` for each line of a UTF-8 file."""
    number = 0
    for lines in read_line_blocks(path):
        yield from enumerate(lines, start=number + 1)
        number += len(lines)


def read_line_blocks(path: Path) -> Iterator[list[str]]:
    """The lines of a UTF-8 file without their ends, some thousand at a time.

    Raises `UserError` for bytes that are not UTF-8, once the lines before them were given. `BEYOND` stands for a line
    that is too long, as in `read_raw_lines`.
    """
    number = 0
    for raw in _whole_lines(path):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            yield from _lines_before_error(raw, path, number)
            raise
        lines = text.split("\n")
        last = lines.pop()  # nothing, or a line that has no end
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        if last:
            lines.append(last)
        number += len(lines)
        yield lines


def _lines_before_error(raw: bytes, path: Path, number: int) -> Iterator[list[str]]:
    """The lines before the one whose bytes are not UTF-8, then its `UserError`. `number` lines come before `raw`."""
    lines: list[str] = []
    for line in raw.split(b"\n"):
        number += 1
        try:
            text = decode(line, path, number)
        except UserError:
            if lines:
                yield lines
            raise
        lines.append(text.removesuffix("\r"))
