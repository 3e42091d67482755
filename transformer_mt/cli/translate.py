"""`tmt translate`."""

import gzip
import io
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from transformer_mt.cli.options import (
    RUNS,
    CheckpointOption,
    DeviceOption,
    RunOption,
    RunsOption,
    chosen_run,
    path_option,
)
from transformer_mt.cli.terminal import remark, typed
from transformer_mt.decoding.splitting import TooLong
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.options import SearchOptions
    from transformer_mt.decoding.streaming import ByteStream
    from transformer_mt.decoding.translator import Translator


STANDARD = Path("-")  # as most commands name standard input and output


class Format(StrEnum):
    """How a translation is written."""

    text = "text"
    jsonl = "jsonl"


def translate(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences; -- stands before one that begins with a dash. None, or -: standard input."),
    ] = None,
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    input: Annotated[Path | None, path_option("A file, plain or gzip, one sentence a line.")] = None,
    output: Annotated[Path | None, path_option("Where the translations go. Default: standard output.")] = None,
    beam_size: Annotated[int | None, typer.Option(help="1: greedy. Default: the run's config.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="0: none. Default: the run's config.")] = None,
    n_best: Annotated[int, typer.Option(help="Hypotheses a sentence; as text: NUMBER ||| text ||| score.")] = 1,
    batch_size: Annotated[int | None, typer.Option(help="Sentences decoded together.")] = None,
    format: Annotated[Format, typer.Option(help="jsonl: source, and hypotheses with score.")] = Format.text,
    too_long: Annotated[
        TooLong, typer.Option(help="A sentence longer than the model's positions: a blank line, what fits, or pieces.")
    ] = TooLong.BLANK,
    device: DeviceOption = "auto",
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16, fp16, int8 or auto. Default: the run's config.")
    ] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Translate sentences, a file, or standard input: one line out for every line in."""
    if sentences and input:
        raise UserError("Sentences and --input were both given. Give one of them.")
    if sentences == ["-"]:
        sentences = None
    from transformer_mt.decoding.options import search_options

    with _open_input(sentences, input) as lines:
        folder = chosen_run(run, runs)
        from transformer_mt.decoding.translator import Translator
        from transformer_mt.machine.memory import keep_freed_memory

        keep_freed_memory()
        translator = Translator.load(folder.path, checkpoint, device, precision)
        if translator.note:
            remark(translator.note)
        scored = format is Format.jsonl or n_best > 1
        decoding = translator.config.decoding
        options = search_options(decoding, beam_size, length_penalty, n_best, batch_size, too_long, scored)
        # Last, so that whatever else is wrong leaves the file that was there.
        with _open_output(output, lines) as sink:
            _translate_stream(translator, options, lines, sink, format)


def _translate_stream(
    translator: "Translator", options: "SearchOptions", lines: "list[str] | ByteStream", sink: TextIO, format: Format
) -> None:
    import json

    from tqdm import tqdm

    from transformer_mt.decoding.streaming import chunk_lines, chunk_size, json_line, text_lines, translate_chunks

    chunks = iter([lines]) if isinstance(lines, list) else chunk_lines(lines, chunk_size(options), _report_damaged)
    number = 0
    hidden = isinstance(lines, list) or not sys.stderr.isatty() or sink.isatty()
    with tqdm(desc="Translating", unit=" lines", disable=hidden) as bar:
        for chunk in translate_chunks(translator, chunks, options):
            for translated in chunk:
                number += 1
                if translated.too_long:
                    _report_too_long(number, translator, options.too_long)
                written = (
                    [json.dumps(json_line(translated), ensure_ascii=False)]
                    if format is Format.jsonl
                    else text_lines(number, translated, options.n_best)
                )
                sink.write("".join(line + "\n" for line in written))
            sink.flush()
            bar.update(len(chunk))


def _report_too_long(number: int, translator: "Translator", too_long: TooLong) -> None:
    done = {
        TooLong.BLANK: "left blank; --too-long split translates it in pieces, truncate what fits",
        TooLong.TRUNCATE: "the beginning was translated",
        TooLong.SPLIT: "translated in pieces",
    }[too_long]
    limit = translator.config.model.max_len
    remark(f"line {number}: longer than the model's {limit} positions, {done}")


def _report_damaged(number: int) -> None:
    remark(f"line {number}: not UTF-8; what is not, here and in any line after it, is read as U+FFFD")


@contextmanager
def _open_input(sentences: list[str] | None, path: Path | None) -> "Iterator[list[str] | ByteStream]":
    if sentences:
        yield [typed(sentence) for sentence in sentences]
    elif path is None or path == STANDARD:
        if sys.__stdin__ is None:
            raise UserError("Standard input is closed. Give sentences, or a file with --input.")
        if sys.stdin.isatty():
            remark("One sentence a line; Ctrl-D ends.")
        with _plain(io.FileIO(sys.stdin.fileno(), closefd=False)) as lines:
            yield lines
    else:
        try:
            stream = io.FileIO(str(path))  # whose name a message can give, packed or not
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror or error}. Check the name after --input."
            ) from None
        with stream, _plain(stream) as lines:
            yield lines


def _plain(stream: io.FileIO) -> "AbstractContextManager[ByteStream]":
    """The stream, unpacked where its first bytes say gzip. Those of a pipe are looked at where they come."""
    from transformer_mt.data.files import GZIP_MAGIC

    if not stream.seekable():
        return nullcontext(stream)
    begin = stream.tell()
    start = stream.read(len(GZIP_MAGIC))
    stream.seek(begin)
    return gzip.open(stream) if start == GZIP_MAGIC else nullcontext(stream)


@contextmanager
def _open_output(path: Path | None, lines: "list[str] | ByteStream") -> Iterator[TextIO]:
    if path is None or path == STANDARD:
        if sys.__stdout__ is None:
            raise UserError("Standard output is closed. Name a file with --output.")
        yield sys.stdout
        return
    # Opening it would empty what has yet to be read.
    if not isinstance(lines, list) and path.is_file() and os.path.samestat(os.fstat(lines.fileno()), path.stat()):
        raise UserError(f"--output {path} is the input itself. Name another file.")
    try:
        with path.open("w", encoding="utf-8", newline="\n") as sink:
            yield sink
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}. Check --output and the disk.") from None
