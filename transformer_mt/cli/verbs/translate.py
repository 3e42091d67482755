"""`tmt translate`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.line_files import STANDARD, is_packed, name_of, open_lines, report_damaged, rest_of
from transformer_mt.cli.line_sink import open_sink
from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.search_flags import with_search_flags
from transformer_mt.cli.terminal import remark, typed
from transformer_mt.cli.translation_stream import TranslationStream
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_options import LineOptions
    from transformer_mt.decoding.lines.line_stream import ByteStream, LineTranslator
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator


@with_search_flags
def translate(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences; -- stands before one that begins with a dash. None, or -: standard input."),
    ] = None,
    *,
    models: Models,
    input: Annotated[Path | None, path_option("A file, plain or gzip, one sentence a line.")] = None,
    output: Annotated[Path | None, path_option("Where the translations go. Default: standard output.")] = None,
    first_line: Annotated[
        int,
        typer.Option(
            min=1,
            help="Which line of a text the input begins with, where the lines before it are done: numbers, samples and "
            "--prefix FILE go on from there.",
        ),
    ] = 1,
    lines: dict[str, Any],
    decoding: dict[str, Any],
) -> None:
    """Translate sentences, a file, or standard input: one line out for every line in."""
    if sentences and input:
        raise UserError("Sentences and --input were both given. Give one of them.")
    if sentences == ["-"]:
        sentences = None
    from transformer_mt.decoding.demands import demanding
    from transformer_mt.decoding.lines.line_formats import FORMATS
    from transformer_mt.decoding.lines.line_options import line_options
    from transformer_mt.decoding.search.options import search_options

    with _open_input(sentences, input) as texts:
        translator = models.load(decoding.get("precision"))
        asked = line_options(translator.config.decoding, lines, decoding)
        options = search_options(translator.config.decoding, **asked.of_search, **decoding)
        works = translator if asked.is_plain else _treated(translator, asked, options)
        source = None if input == STANDARD else input
        name = name_of(source or STANDARD)
        chunks = demanding(_chunks(texts, options, name), asked.prefixes, options.constraints is not None, first_line)
        format = FORMATS[asked.format]
        goes_by_number = format.is_numbered(asked.n_best) or options.is_sampling or asked.prefix_file is not None
        packed = not isinstance(texts, list) and is_packed(texts)
        with open_sink(
            output,
            [] if isinstance(texts, list) else [texts],
            lambda first: (
                f"{rest_of(source, packed, first)} | tmt translate …"
                + f" --first-line {first_line + first - 1}" * goes_by_number
            ),
            is_told=not isinstance(texts, list) and not sys.stdin.isatty(),
        ) as sink:
            stream = TranslationStream(
                sink,
                format,
                options,
                name,
                translator.config.model.max_len,
                is_waited_for=isinstance(texts, list),
                first_line=first_line,
            )
            try:
                stream.run(works, chunks)
            finally:
                stream.unknown.report()


def _treated(translator: "Translator", asked: "LineOptions", options: "SearchOptions") -> "LineTranslator":
    from transformer_mt.finishing.treated import treated  # with the aligner and all, which few translations need

    return treated(translator, asked, options, remark)


def _chunks(texts: "list[str] | ByteStream", options: "SearchOptions", name: str) -> "Iterator[list[str]]":
    if isinstance(texts, list):
        return iter([texts])
    from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_size

    return chunk_lines(texts, chunk_size(options), partial(report_damaged, name))


@contextmanager
def _open_input(sentences: list[str] | None, path: Path | None) -> "Iterator[list[str] | ByteStream]":
    if sentences:
        yield [typed(sentence) for sentence in sentences]
        return
    if path is None or path == STANDARD:
        if sys.__stdin__ is None:
            raise UserError("Standard input is closed. Give sentences, or a file with --input.")
        if sys.stdin.isatty():
            remark("One sentence a line; Ctrl-D ends.")
    with open_lines(path or STANDARD, "--input") as texts:
        yield texts
