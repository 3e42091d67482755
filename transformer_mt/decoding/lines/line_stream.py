"""Lines in, lines out, in order, whatever they hold: a file, a pipe or a keyboard."""

import codecs
import io
import queue
import select
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.data.sources.files import BZ2_MAGIC, GZIP_MAGIC, XZ_MAGIC
from transformer_mt.decoding.demands import SourceLine, with_places
from transformer_mt.decoding.scoring import Scored, Scorer
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import READER

READ_BYTES = 65536
CHARACTERS_A_LINE = 1024  # a longer line counts as several, so that a chunk of long lines stays small
# The first bytes of packed text, and the command that unpacks it. A gzip file is unpacked before it comes here.
PACKED = {
    "gzip": ((GZIP_MAGIC,), "zcat"),
    "bzip2": (BZ2_MAGIC, "bzcat"),
    "xz": ((XZ_MAGIC,), "xzcat"),
    "Zstandard": ((b"\x28\xb5\x2f\xfd",), "zstdcat"),
}
BYTE_ORDER_MARKS = {  # that of UTF-16 begins that of UTF-32
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
ByteStream = io.RawIOBase | io.BufferedIOBase
CHUNK_BATCHES = 8  # for each core: the lines of so many batches are sorted by length together


class LineTranslator(Protocol):
    """What translates lines, as `Translator` does."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def precision(self) -> str: ...

    def keep_processes(self) -> AbstractContextManager[None]: ...

    def translate_lines(
        self, texts: Iterable[str | SourceLine], options: SearchOptions | None = None
    ) -> list[Translated]: ...


def translate_chunks(
    translator: LineTranslator, chunks: Iterable[Sequence[str | SourceLine]], options: SearchOptions, first: int = 0
) -> Iterator[list[Translated]]:
    """The translations of each chunk of lines, in order. Lines are counted from chunk to chunk, for their samples; the
    first of them has the number `first`.
    """
    number = first
    with translator.keep_processes():
        for chunk in chunks:
            yield translator.translate_lines(with_places(chunk, number) if options.is_sampling else chunk, options)
            number += len(chunk)


def score_chunks(
    scorer: Scorer, chunks: Iterator[list[tuple[str, str]]], options: SearchOptions
) -> Iterator[list[Scored]]:
    """What the model says of each chunk of pairs, in order."""
    with scorer.keep_processes():
        for chunk in chunks:
            yield scorer.score(chunk, options)


def chunk_size(options: SearchOptions) -> int:
    """How many lines are sorted by length and translated together, enough for all cores."""
    return max(2, torch.get_num_threads()) * CHUNK_BATCHES * options.batch_size


def chunk_pairs(
    sources: Iterator[list[str]], references: Iterator[list[str]], names: tuple[str, str]
) -> Iterator[list[tuple[str, str]]]:
    """Line n of one stream with line n of the other, a chunk at a time. After the last pair, UserError where one of the
    streams, which are called by their `names`, has more lines.
    """
    streams = sources, references
    waiting: list[list[str]] = [[], []]
    number = 0
    while True:
        waiting = [lines or next(stream, []) for lines, stream in zip(waiting, streams, strict=True)]
        size = min(map(len, waiting))
        if size == 0:
            break
        yield list(zip(*(lines[:size] for lines in waiting), strict=True))
        number += size
        waiting = [lines[size:] for lines in waiting]
    for side in (0, 1):
        if waiting[side]:
            raise UserError(
                f"{names[1 - side]} ends after line {number:,}, and {names[side]} goes on. Line n of one must "
                "translate line n of the other: find where they part, and make them equal."
            )


class _LineQueue(queue.Queue[str | BaseException | None]):
    """A queue that is full of fewer lines where they are long."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._weight = 0

    def _qsize(self) -> int:
        return self._weight

    def _put(self, item: str | BaseException | None) -> None:
        super()._put(item)
        self._weight += _weight(item)

    def _get(self) -> str | BaseException | None:
        item = super()._get()
        self._weight -= _weight(item)
        return item


def _weight(item: str | BaseException | None) -> int:
    return 1 + len(item) // CHARACTERS_A_LINE if isinstance(item, str) else 1


def chunk_lines(
    stream: ByteStream,
    size: int,
    report_damaged: Callable[[int], None] = lambda _: None,
    name: str = "The input",
    onwards: str = "| tmt translate",
) -> Iterator[list[str]]:
    """Up to `size` lines at a time, fewer if they are long. Once a chunk has its first line, it waits for no other.

    A thread of its own reads ahead. So a file comes in full chunks as fast as they are used, and a person at a keyboard
    gets an answer after every line. Lines end at \\n or \\r\\n; the last line needs no end. Bytes that are not UTF-8
    become U+FFFD, and `report_damaged` gets the number, from 1, of the first line that has some. A line that
    `is_beyond` comes shortened, and is so still. Raises UserError where the stream cannot be read, or is packed or not
    UTF-8; `name` is what the message calls it, and `onwards` where text goes after a command that makes some of it.
    """
    lines = _LineQueue(maxsize=2 * size)

    def read() -> None:
        """Put every line into the queue, and last None or the error that ended it. Nothing is raised in this thread."""
        try:
            is_told = False
            for number, line in enumerate(_raw_lines(stream), start=1):
                if number == 1:
                    _refuse_no_text(line, name, onwards)
                    line = line.removeprefix(codecs.BOM_UTF8)
                line = line.removesuffix(b"\r")
                try:
                    lines.put(line.decode("utf-8"))
                except UnicodeDecodeError:
                    if not is_told and len(line) <= LONGEST_LINE:  # what is longer may be cut within a character
                        report_damaged(number)
                        is_told = True
                    lines.put(line.decode("utf-8", errors="replace"))
            lines.put(None)
        except (OSError, EOFError, zlib.error) as error:
            path = getattr(stream, "name", None)  # of standard input a number
            called = path if isinstance(path, str | Path) else name
            reason = getattr(error, "strerror", None) or error
            lines.put(UserError(f"{called} cannot be read: {str(reason).rstrip('.')}. Check where it comes from."))
        except BaseException as error:  # handed to the thread that can report it
            lines.put(error)

    threading.Thread(target=read, name=READER, daemon=True).start()
    ended = False
    while not ended:
        chunk: list[str] = []
        weight = 0
        while weight < size and not (chunk and lines.empty()):
            item = lines.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                ended = True
                break
            chunk.append(item)
            weight += _weight(item)
        if chunk:
            yield chunk


def _refuse_no_text(line: bytes, name: str, onwards: str) -> None:
    """Raise UserError where the first line is packed or in another encoding, which would translate to a file of
    nonsense.
    """
    for kind, (beginnings, unpack) in PACKED.items():
        if line.startswith(beginnings):
            raise UserError(f"{name} is {kind}. Unpack it: {unpack} FILE {onwards}.")
    # No text in UTF-8 begins so. Nothing else tells: a line of Greek or Chinese has no NUL in UTF-16.
    for encoding, marks in BYTE_ORDER_MARKS.items():
        if line.startswith(marks):
            raise UserError(f"{name} is {encoding}. Convert it: iconv -f {encoding} -t UTF-8 FILE {onwards}.")


def _raw_lines(stream: ByteStream) -> Iterator[bytes]:
    """Lines without their \\n; of one that is too long, only the beginning. Unbuffered, since a thread that waits in
    Python's own buffer blocks the exit.
    """
    begun: list[bytes] = []
    num_begun = 0
    while (block := stream.read(READ_BYTES)) != b"":
        if block is None:  # nothing yet: another program has made the descriptor non-blocking
            select.select([stream], [], [])
            continue
        first, *more = block.split(b"\n")
        if num_begun <= LONGEST_LINE + 1:  # a return may belong to the line's end
            begun.append(first)
            num_begun += len(first)
        for line in more:
            yield b"".join(begun)
            begun, num_begun = [line], len(line)
    if any(begun):
        yield b"".join(begun)
