"""`tmt translate`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
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
from transformer_mt.cli.treatments import Treatments
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import ByteStream
    from transformer_mt.decoding.search.options import SearchOptions


class Format(StrEnum):
    """How a translation is written."""

    text = "text"
    jsonl = "jsonl"
    moses = "moses"


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
    n_best: Annotated[
        int, typer.Option(help="Translations of each sentence; as text, a line each: NUMBER ||| TEXT ||| SCORE.")
    ] = 1,
    format: Annotated[
        Format,
        typer.Option(
            help="jsonl: a JSON object a line, with the source and its scored translations; moses: an n-best list as "
            "Moses writes it, NUMBER ||| TEXT ||| F0= LOG_PROB ||| SCORE, counted from 0."
        ),
    ] = Format.text,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="A file with the beginning of each translation, one a line, blank for none; or tab: it stands in the "
            "line itself, behind the source and a tab."
        ),
    ] = None,
    first_line: Annotated[
        int,
        typer.Option(
            min=1,
            help="Which line of a text the input begins with, where the lines before it are done: numbers, samples and "
            "--prefix FILE go on from there.",
        ),
    ] = 1,
    treatments: Treatments,
    too_long: Annotated[
        TooLong,
        typer.Option(
            help="Of a sentence longer than the model's positions: leave its line blank, translate its beginning "
            "(truncate), or translate it in pieces (split)."
        ),
    ] = TooLong.BLANK,
    decoding: dict[str, Any],
) -> None:
    """Translate sentences, a file, or standard input: one line out for every line in."""
    if sentences and input:
        raise UserError("Sentences and --input were both given. Give one of them.")
    treatments.refuse_clashes(prefix, decoding)
    if sentences == ["-"]:
        sentences = None
    from transformer_mt.decoding.demands import demanding
    from transformer_mt.decoding.lines.line_formats import FORMATS
    from transformer_mt.decoding.search.options import search_options

    with _open_input(sentences, input) as lines:
        translator = models.load(decoding.get("precision"))
        options = search_options(
            translator.config.decoding,
            n_best=n_best,
            too_long=too_long,
            scored=format is not Format.text or n_best > 1,
            **decoding,
        )
        works = treatments.around(translator, translator.checkpoints[0][0], options)
        source = None if input == STANDARD else input
        chunks = demanding(
            _chunks(lines, options, name_of(source or STANDARD)), prefix, options.constraints is not None, first_line
        )
        goes_by_number = FORMATS[format].is_numbered(n_best) or options.is_sampling or prefix not in (None, "tab")
        packed = not isinstance(lines, list) and is_packed(lines)
        with open_sink(
            output,
            [] if isinstance(lines, list) else [lines],
            lambda first: (
                f"{rest_of(source, packed, first)} | tmt translate …"
                + f" --first-line {first_line + first - 1}" * goes_by_number
            ),
            is_told=not isinstance(lines, list) and not sys.stdin.isatty(),
        ) as sink:
            stream = TranslationStream(
                sink,
                FORMATS[format],
                options,
                name_of(source or STANDARD),
                translator.config.model.max_len,
                is_waited_for=isinstance(lines, list),
                first_line=first_line,
            )
            try:
                stream.run(works, chunks)
            finally:
                stream.unknown.report()


def _chunks(lines: "list[str] | ByteStream", options: "SearchOptions", name: str) -> "Iterator[list[str]]":
    if isinstance(lines, list):
        return iter([lines])
    from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_size

    return chunk_lines(lines, chunk_size(options), partial(report_damaged, name))


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
    with open_lines(path or STANDARD, "--input") as lines:
        yield lines
