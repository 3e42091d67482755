"""Lines in, lines out, in order, whatever they hold: a file, a pipe or a keyboard."""

import codecs
import io
import queue
import select
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from transformer_mt.data.files import GZIP_MAGIC
from transformer_mt.decoding.options import SearchOptions
from transformer_mt.decoding.translator import Translated, Translator
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import READER

READ_BYTES = 65536
# How packed text begins, and what unpacks it. Of gzip a file is unpacked before it comes here.
PACKED = {
    "gzip": ((GZIP_MAGIC,), "zcat"),
    "bzip2": (tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)), "bzcat"),
    "xz": ((b"\xfd7zXZ\0",), "xzcat"),
    "Zstandard": ((b"\x28\xb5\x2f\xfd",), "zstdcat"),
}
ByteStream = io.RawIOBase | io.BufferedIOBase
CHUNK_BATCHES = 8  # of each core: lines that are sorted by length together


def translate_chunks(
    translator: Translator, chunks: Iterator[list[str]], options: SearchOptions
) -> Iterator[list[Translated]]:
    """The translations of each chunk of lines, in order."""
    with translator.keep_processes():
        for chunk in chunks:
            yield translator.translate_lines(chunk, options)


def chunk_size(options: SearchOptions) -> int:
    """How many lines are sorted by length and translated together: enough batches for all cores."""
    return max(2, torch.get_num_threads()) * CHUNK_BATCHES * options.batch_size


def chunk_lines(
    stream: ByteStream, size: int, report_damaged: Callable[[int], None] = lambda _: None
) -> Iterator[list[str]]:
    """Up to `size` lines at a time, waiting for none that is not there yet once the first has come.

    A reader on its own thread keeps the queue full, so a file comes in full chunks as fast as they are used, and a
    person at a keyboard gets an answer after every line. Lines end at \\n or \\r\\n; bytes that are not UTF-8 become
    U+FFFD, and `report_damaged` is told the number, from 1, of the first line that has some. The last line needs no
    end. Raises UserError where the stream cannot be read.
    """
    lines: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * size)

    def read() -> None:
        try:
            is_told = False
            for number, line in enumerate(_raw_lines(stream), start=1):
                if number == 1:
                    _refuse_no_text(line)
                    line = line.removeprefix(codecs.BOM_UTF8)
                line = line.removesuffix(b"\r")
                try:
                    lines.put(line.decode("utf-8"))
                except UnicodeDecodeError:
                    if not is_told:
                        report_damaged(number)
                    is_told = True
                    lines.put(line.decode("utf-8", errors="replace"))
            lines.put(None)
        except (OSError, EOFError, zlib.error) as error:
            name = getattr(stream, "name", None)  # of standard input a number
            name = name if isinstance(name, str | Path) else "The input"
            reason = getattr(error, "strerror", None) or error
            lines.put(UserError(f"{name} cannot be read: {str(reason).rstrip('.')}. Check what is to be translated."))
        except BaseException as error:  # handed to the thread that can report it
            lines.put(error)

    threading.Thread(target=read, name=READER, daemon=True).start()
    ended = False
    while not ended:
        chunk: list[str] = []
        while len(chunk) < size and not (chunk and lines.empty()):
            item = lines.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                ended = True
                break
            chunk.append(item)
        if chunk:
            yield chunk


def _refuse_no_text(line: bytes) -> None:
    """Raises UserError for the first line of what is packed or UTF-16: whole files of nonsense would come of it."""
    for kind, (beginnings, unpack) in PACKED.items():
        if line.startswith(beginnings):
            raise UserError(f"The input is {kind}. Unpack it: {unpack} FILE | tmt translate.")
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in line:
        raise UserError("The input is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 FILE | tmt translate.")


def _raw_lines(stream: ByteStream) -> Iterator[bytes]:
    """Lines without their \\n. Unbuffered: a thread that waits within Python's own buffer cannot be left at exit."""
    begun: list[bytes] = []
    while (block := stream.read(READ_BYTES)) != b"":
        if block is None:  # nothing yet: another program has set its end of the descriptor not to wait
            select.select([stream], [], [])
            continue
        first, *more = block.split(b"\n")
        begun.append(first)
        for line in more:
            yield b"".join(begun)
            begun = [line]
    if any(begun):
        yield b"".join(begun)


def text_lines(number: int, translated: Translated, n_best: int) -> list[str]:
    """One line; or, for an n-best list, `NUMBER ||| text ||| score` for each hypothesis, at least one."""
    if n_best == 1:
        return [translated.text]
    if not translated.hypotheses:
        return [f"{number} |||  ||| "]
    return [f"{number} ||| {h.text} ||| {h.score:.4f}" for h in translated.hypotheses]


def json_line(translated: Translated) -> dict:
    """What `--format jsonl` writes of a line."""
    hypotheses = [
        {"text": h.text, "score": h.score, "log_prob": h.log_prob, "tokens": h.tokens} for h in translated.hypotheses
    ]
    too_long = {"too_long": True} if translated.too_long else {}
    return {"source": translated.source, "hypotheses": hypotheses, **too_long}
